# The libraries are static: what they link to must be found too.
include(${CMAKE_CURRENT_LIST_DIR}/dependencies.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/slimeTargets.cmake)

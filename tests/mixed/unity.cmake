# Included by project() of an earlier version (scripts/mixed_versions.sh), whose layers are compiled ten files at a time:
# they take a third of the time. These targets have the same names in several of their files.
cmake_language(DEFER CALL set_property TARGET slime slime_bench _slime matrix_client PROPERTY UNITY_BUILD OFF)

"""Slime: peer agents, one-sided transfers and RPC over RDMA mailboxes, or plain TCP."""
from slime._slime import Code, Future, LogLevel, __version__, set_log_level

__all__ = ["Code", "Future", "LogLevel", "__version__", "set_log_level"]

from policy.apiserver import api, served

__all__ = ["api", "served"]

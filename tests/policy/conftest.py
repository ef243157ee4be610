from tests.policy.apiserver import api, served

__all__ = ["api", "served"]

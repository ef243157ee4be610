"""Outputs as environment variables: their names, and the names that no output may have."""

from __future__ import annotations

import re

from dayfly.client.errors import DayflyError, Exit

_PREFIXES = ("LD_", "DYLD_", "BASH_", "DAYFLY_", "SIGNADOT_", "NPM_CONFIG_", "GIT_CONFIG_KEY_", "GIT_CONFIG_VALUE_")
_NAMES = frozenset(
    {
        *("NODE_OPTIONS", "NODE_PATH", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "MAVEN_OPTS"),
        *("GRADLE_OPTS", "DOTNET_STARTUP_HOOKS", "PROMPT_COMMAND", "SSH_ASKPASS", "SUDO_ASKPASS", "SSH_AUTH_SOCK"),
        *("GIT_SSH", "GIT_SSH_COMMAND", "GIT_ASKPASS", "GIT_EXEC_PATH", "GIT_EXTERNAL_DIFF", "GIT_PROXY_COMMAND"),
        *("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_COUNT", "GIT_CONFIG_PARAMETERS", "GIT_TEMPLATE_DIR"),
        *(
            "GIT_CONFIG",
            "GIT_DIR",
            "GIT_WORK_TREE",
            "GIT_EDITOR",
            "GIT_PAGER",
            "GIT_SEQUENCE_EDITOR",
            "GIT_SSL_NO_VERIFY",
        ),
        *("GIT_SSL_CAINFO", "GIT_ALLOW_PROTOCOL", "GIT_STRATEGY", "GIT_CLEAN_FLAGS", "GIT_CLONE_PATH"),
        *("PIP_CONFIG_FILE", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "PIP_FIND_LINKS"),
        *("UV_INDEX", "UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_CONFIG_FILE"),
        *(
            "CARGO_HOME",
            "RUSTC_WRAPPER",
            "RUSTC_WORKSPACE_WRAPPER",
            "JAVA_HOME",
            "MAVEN_ARGS",
            "MAVEN_CONFIG",
            "JAVA_OPTS",
        ),
        *(
            "GRADLE_USER_HOME",
            "GEM_HOME",
            "GEM_PATH",
            "BUNDLE_GEMFILE",
            "BUNDLE_PATH",
            "LUA_INIT",
            "LUA_PATH",
            "LUA_CPATH",
        ),
        *("R_PROFILE", "R_PROFILE_USER", "R_ENVIRON", "R_ENVIRON_USER", "PHP_INI_SCAN_DIR", "ERL_FLAGS", "ERL_AFLAGS"),
        *("GCONV_PATH", "GLIBC_TUNABLES", "OPENSSL_CONF", "OPENSSL_MODULES", "TF_CLI_ARGS", "TF_CLI_CONFIG_FILE"),
        *("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CONFIG_DIRS", "XDG_DATA_DIRS", "CMAKE_TOOLCHAIN_FILE"),
        *("DOCKER_HOST", "DOCKER_CONFIG", "DOCKER_CONTEXT", "DOCKER_CERT_PATH", "DOCKER_AUTH_CONFIG"),
        *("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR"),
        *("CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "NODE_TLS_REJECT_UNAUTHORIZED"),
    }
)
"""Variables that change which code runs, or where requests go. A name of an output has at least one `_`."""


def variable_name(resource: str, step: str, output: str) -> str:
    """Return the environment variable of an output."""
    words = "_".join(part for part in (resource, step, output) if part)
    return re.sub(r"[^A-Z0-9]", "_", words.upper())


def check_variable(name: str, place: str, *prefixes: str) -> None:
    """Refuse an output that would set a variable which changes how programs run.

    Args:
        name: The variable.
        place: The output, as a person names it.
        *prefixes: Prefixes of further refused variables.

    Raises:
        DayflyError: with the ways out.
    """
    if name in _NAMES or name.startswith((*_PREFIXES, *prefixes)):
        message = f"the output {place} would set {name}, which changes how programs or CI jobs run"
        raise DayflyError(
            Exit.FAILED, message, "rename its resource, step or output, or use: dayfly env SANDBOX -o json"
        )

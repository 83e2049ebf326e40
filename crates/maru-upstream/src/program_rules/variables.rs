//! Classifies environment variables that make a program load code or start other
//! programs: by families of names, minus their known harmless members. Pure.

/// Families of variables by name prefix, with their harmless members.
const CODE_VARIABLE_FAMILIES: &[(&str, &[&str])] = &[
    ("LD_", &[]),
    ("DYLD_", &[]),
    (
        "PYTHON",
        &[
            "PYTHONUNBUFFERED",
            "PYTHONIOENCODING",
            "PYTHONUTF8",
            "PYTHONDONTWRITEBYTECODE",
            "PYTHONHASHSEED",
            "PYTHONNOUSERSITE",
            "PYTHONSAFEPATH",
            "PYTHONFAULTHANDLER",
            "PYTHONOPTIMIZE",
            "PYTHONVERBOSE",
            "PYTHONTRACEMALLOC",
            "PYTHONASYNCIODEBUG",
            "PYTHONDEVMODE",
            "PYTHONCOERCECLOCALE",
            "PYTHONMALLOC",
            "PYTHONLEGACYWINDOWSSTDIO",
        ],
    ),
    (
        "NODE_",
        &[
            "NODE_ENV",
            "NODE_EXTRA_CA_CERTS",
            "NODE_NO_WARNINGS",
            "NODE_DEBUG",
            "NODE_DISABLE_COLORS",
            "NODE_TLS_REJECT_UNAUTHORIZED",
            "NODE_PENDING_DEPRECATION",
            "NODE_USE_SYSTEM_CA",
            "NODE_USE_ENV_PROXY",
            "NODE_AUTH_TOKEN",
        ],
    ),
    (
        "NPM_CONFIG_",
        &[
            "NPM_CONFIG_LOGLEVEL",
            "NPM_CONFIG_UPDATE_NOTIFIER",
            "NPM_CONFIG_YES",
            "NPM_CONFIG_FUND",
            "NPM_CONFIG_AUDIT",
            "NPM_CONFIG_OFFLINE",
            "NPM_CONFIG_COLOR",
            "NPM_CONFIG_PROGRESS",
        ],
    ),
    (
        "UV_",
        &[
            "UV_NO_PROGRESS",
            "UV_OFFLINE",
            "UV_NO_CACHE",
            "UV_LINK_MODE",
            "UV_PYTHON_PREFERENCE",
            "UV_NATIVE_TLS",
            "UV_SYSTEM_CERTS",
            "UV_HTTP_TIMEOUT",
        ],
    ),
    (
        "PIP_",
        &[
            "PIP_NO_INPUT",
            "PIP_DISABLE_PIP_VERSION_CHECK",
            "PIP_QUIET",
            "PIP_NO_CACHE_DIR",
        ],
    ),
    ("BUN_", &[]),
    ("DENO_", &["DENO_NO_UPDATE_CHECK", "DENO_NO_PROMPT"]),
    ("YARN_", &[]),
    ("PNPM_", &[]),
    ("COREPACK_", &[]),
    ("PERL", &["PERL_UNICODE"]),
    ("RUBY", &[]),
    ("GEM_", &[]),
    ("BUNDLE_", &[]),
    ("LUA_", &[]),
    ("PHP_INI", &[]),
    ("R_PROFILE", &[]),
    ("R_ENVIRON", &[]),
    ("R_LIBS", &[]),
    ("JULIA_", &["JULIA_NUM_THREADS"]),
    ("JAVA_", &[]),
    ("JDK_", &[]),
    ("MAVEN_", &[]),
    ("GRADLE_", &[]),
    (
        "DOTNET_",
        &[
            "DOTNET_ENVIRONMENT",
            "DOTNET_CLI_TELEMETRY_OPTOUT",
            "DOTNET_NOLOGO",
            "DOTNET_RUNNING_IN_CONTAINER",
            "DOTNET_SYSTEM_GLOBALIZATION_INVARIANT",
        ],
    ),
    ("CORECLR_", &[]),
    ("COR_", &[]),
    ("MONO_", &[]),
    (
        "GIT_",
        &[
            "GIT_AUTHOR_NAME",
            "GIT_AUTHOR_EMAIL",
            "GIT_AUTHOR_DATE",
            "GIT_COMMITTER_NAME",
            "GIT_COMMITTER_EMAIL",
            "GIT_COMMITTER_DATE",
            "GIT_TERMINAL_PROMPT",
            "GIT_HTTP_USER_AGENT",
            "GIT_TOKEN",
            "GIT_USERNAME",
            "GIT_PASSWORD",
        ],
    ),
    ("BASH_", &[]),
    ("ZSH_", &[]),
    ("KSH_", &[]),
    ("FISH_", &[]),
    ("OPENSSL_", &[]),
    ("GLIBC_", &[]),
    ("MALLOC_", &[]),
    ("GIO_", &[]),
    ("GTK_", &[]),
    ("QT_", &[]),
    ("GST_", &[]),
    ("CARGO_", &["CARGO_TERM_COLOR"]),
    ("RUSTC", &[]),
    ("RUSTUP_", &[]),
    ("CMAKE_", &[]),
    ("MAKE", &[]),
    ("DOCKER_", &[]),
    ("CONTAINER_HOST", &[]),
    ("ANSIBLE_", &[]),
    ("LESS", &[]),
    (
        "XDG_",
        &["XDG_RUNTIME_DIR", "XDG_SESSION_TYPE", "XDG_CURRENT_DESKTOP"],
    ),
];

/// Name suffixes that mean the same for every program.
const CODE_VARIABLE_SUFFIXES: &[&str] = &[
    "_PRELOAD",
    "_ASKPASS",
    "_PAGER",
    "_EDITOR",
    "_SHELL",
    "_RSH",
    "_COMMAND",
    "_OPTIONS",
    "_OPTS",
    "_LIBRARY_PATH",
    "_MODULE_PATH",
    "_PLUGIN_PATH",
    "_STARTUP_HOOKS",
];

/// Individual variables of the system and of well-known programs.
const CODE_VARIABLES: &[&str] = &[
    "PATH",
    "IFS",
    "ENV",
    "SHELL",
    "SHELLOPTS",
    "BASHOPTS",
    "ZDOTDIR",
    "FPATH",
    "CDPATH",
    "PROMPT_COMMAND",
    "PS0",
    "PS1",
    "PS2",
    "PS4",
    "EDITOR",
    "VISUAL",
    "PAGER",
    "MANPAGER",
    "BROWSER",
    "RSH",
    "INPUTRC",
    "VIMINIT",
    "EXINIT",
    "GCONV_PATH",
    "GETCONF_DIR",
    "CLASSPATH",
    "PHPRC",
    "GOFLAGS",
    "CC",
    "CXX",
    "PSQLRC",
    "GI_TYPELIB_PATH",
];

/// Variables that name directories, services and settings files. Those may name code in
/// turn, but rarely do.
const FOLDER_VARIABLES: &[&str] = &[
    "ANSIBLE_",
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "BUNDLE_",
    "BUN_",
    "CARGO_",
    "CLOUDSDK_PYTHON",
    "CMAKE_",
    "CONDA_PREFIX",
    "CONTAINER_HOST",
    "COREPACK_",
    "CURL_HOME",
    "DENO_",
    "DOCKER_",
    "GEM_",
    "GIO_",
    "GOPATH",
    "GOROOT",
    "GRADLE_",
    "GST_",
    "GTK_",
    "HOME",
    "HOSTALIASES",
    "JAVA_HOME",
    "JDK_",
    "JULIA_",
    "KUBECONFIG",
    "LOCPATH",
    "MALLOC_",
    "MAVEN_",
    "NLSPATH",
    "PGSYSCONFDIR",
    "PIP_",
    "PNPM_",
    "QT_",
    "RIPGREP_CONFIG_PATH",
    "RUSTUP_",
    "SSLKEYLOGFILE",
    "TERMCAP",
    "TERMINFO",
    "TERMINFO_DIRS",
    "UV_",
    "VIRTUAL_ENV",
    "WGETRC",
    "XDG_",
    "YARN_",
];

/// The effect of a variable on the program that reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VariableEffect {
    None,
    /// It decides which code is loaded or which programs are started.
    Code,
    /// It decides where settings are read from.
    Folder,
}

/// Returns the effect of a variable by its name.
pub(super) fn variable_effect(name: &str) -> VariableEffect {
    // npm reads `npm_config_…` in any case, and Java's variable begins with an
    // underscore.
    let upper = name.to_ascii_uppercase();
    let name = upper.trim_start_matches('_');
    let is_harmless = CODE_VARIABLE_FAMILIES
        .iter()
        .any(|(_, harmless)| harmless.contains(&name));
    let is_of = |beginning: &str| name.starts_with(beginning);
    let names_folder = |it: &str| {
        if it.ends_with('_') {
            is_of(it)
        } else {
            name == it
        }
    };
    if is_harmless {
        VariableEffect::None
    } else if FOLDER_VARIABLES.iter().any(|it| names_folder(it)) {
        VariableEffect::Folder
    } else if CODE_VARIABLES.contains(&name)
        || CODE_VARIABLE_FAMILIES
            .iter()
            .any(|(beginning, _)| is_of(beginning))
        || CODE_VARIABLE_SUFFIXES.iter().any(|it| name.ends_with(it))
    {
        VariableEffect::Code
    } else {
        VariableEffect::None
    }
}

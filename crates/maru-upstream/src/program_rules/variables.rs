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
    ("ERL_", &[]),
    ("GUILE_", &[]),
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
    "AWKPATH",
    "AWKLIBPATH",
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
    "NVM_",
    "PGSYSCONFDIR",
    "PIP_",
    "PNPM_",
    "PYENV_",
    "QT_",
    "RIPGREP_CONFIG_PATH",
    "RUSTUP_",
    "SSLKEYLOGFILE",
    "TERMCAP",
    "TERMINFO",
    "TERMINFO_DIRS",
    "UV_",
    "VIRTUAL_ENV",
    "VOLTA_",
    "WGETRC",
    "XDG_",
    "YARN_",
];

/// What names of credentials and of accounts end with. No program that maru knows takes code
/// or an address from a variable of such a name.
const VALUE_SUFFIXES: &[&str] = &[
    "_EMAIL",
    "_ID",
    "_KEY",
    "_PASSWORD",
    "_REGION",
    "_SECRET",
    "_TOKEN",
    "_USER",
    "_USERNAME",
];

/// Individual variables that are only values.
const VALUE_VARIABLES: &[&str] = &["LANG", "LANGUAGE", "LOG_LEVEL", "NO_COLOR", "TOKEN", "TZ"];

/// Harmless where only this machine reaches the hub, but they let somebody between a
/// server and what it connects to.
const TRUST_VARIABLES: &[&str] = &["NODE_EXTRA_CA_CERTS", "NODE_TLS_REJECT_UNAUTHORIZED"];

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
    let name = &*normalized_name(name);
    let is_harmless = is_harmless_member(name);
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

/// Whether a hub that others can reach takes the variable from a registration. There, no
/// list of dangerous names is enough, because every program has its own; so only names
/// pass whose variables are values: credentials, names of accounts, locale, and what is
/// known to be harmless.
pub(super) fn is_plain_value(name: &str) -> bool {
    if variable_effect(name) != VariableEffect::None {
        return false;
    }
    let name = &*normalized_name(name);
    let is_value = VALUE_VARIABLES.contains(&name)
        || name.starts_with("LC_")
        || VALUE_SUFFIXES.iter().any(|it| name.ends_with(it));
    is_value || is_harmless_member(name) && !TRUST_VARIABLES.contains(&name)
}

/// The name as it is listed: npm reads `npm_config_…` in any case, and Java's variable
/// begins with an underscore.
fn normalized_name(name: &str) -> String {
    name.to_ascii_uppercase().trim_start_matches('_').to_owned()
}

fn is_harmless_member(name: &str) -> bool {
    let mut families = CODE_VARIABLE_FAMILIES.iter();
    families.any(|(_, harmless)| harmless.contains(&name))
}

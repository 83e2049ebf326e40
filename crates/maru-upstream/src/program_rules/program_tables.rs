//! Tables of programs that run shells, run code from their arguments, or start other
//! programs. Each list is one string of words, which is shorter than one word per line.

/// A program that can run code from its arguments.
pub(super) struct Interpreter {
    pub(super) names: &'static str,
    /// Whether its main argument is always code.
    pub(super) always_runs_code: bool,
    /// Short options that carry code.
    pub(super) code_short: &'static str,
    pub(super) code_long: &'static str,
    /// Long options with a single dash that carry code, such as `-exec`.
    pub(super) code_words: &'static str,
    /// Operands that carry code. One that ends in `:` or `=` matches anywhere in an
    /// argument, ignoring case.
    pub(super) code_operands: &'static str,
    /// Modules of `-m` that run code from the arguments.
    pub(super) code_modules: &'static str,
    /// Short options that take a value, which is not the script.
    pub(super) value_short: &'static str,
    pub(super) value_long: &'static str,
    /// Short options without a value.
    pub(super) flags: &'static str,
    /// Whether options may follow operands.
    pub(super) options_anywhere: bool,
    /// Operands after this many are a command, as in `ssh host command`.
    pub(super) code_after: Option<usize>,
    /// Whether an operand that begins with a dot is a command, such as `.shell`.
    pub(super) has_dot_commands: bool,
}

/// A program that starts another program named in its arguments.
pub(super) struct WrapperProgram {
    pub(super) names: &'static str,
    /// The subcommands that start a program, such as `run; tool run`; empty if it always
    /// does.
    pub(super) subcommands: &'static str,
    /// The number of operands before the program.
    pub(super) operands: usize,
    /// Whether `NAME=value` may precede the program.
    pub(super) assignments: bool,
    pub(super) code_short: &'static str,
    pub(super) code_long: &'static str,
    pub(super) value_short: &'static str,
    pub(super) value_long: &'static str,
    /// Short options without a value.
    pub(super) flags: &'static str,
    pub(super) flags_long: &'static str,
}

const DEFAULT_INTERPRETER: Interpreter = Interpreter {
    names: "",
    always_runs_code: false,
    code_short: "",
    code_long: "",
    code_words: "",
    code_operands: "",
    code_modules: "",
    value_short: "",
    value_long: "",
    flags: "",
    options_anywhere: false,
    code_after: None,
    has_dot_commands: false,
};

const DEFAULT_WRAPPER: WrapperProgram = WrapperProgram {
    names: "",
    subcommands: "",
    operands: 0,
    assignments: false,
    code_short: "",
    code_long: "",
    value_short: "",
    value_long: "",
    flags: "",
    flags_long: "",
};

/// Shells, and programs that run the commands of their input.
pub(super) const SHELLS: &str = "sh bash dash ash zsh fish ksh mksh pdksh oksh loksh yash csh tcsh rbash rzsh \
            rc es elvish nu nushell xonsh oil osh ysh hush msh posh pwsh powershell cmd \
            command.com wsl sshell su runuser watch parallel screen tmux expect at batch \
            crontab";

/// Programs that are one file under many names.
pub(super) const MULTI_CALL_PROGRAMS: &str = "busybox toybox coreutils uutils sbase-box";

pub(super) const INTERPRETERS: &[Interpreter] = &[
    Interpreter {
        names: "python pythonw pypy ipython jython graalpy micropython py",
        code_short: "c",
        code_modules: "timeit pdb bdb code trace profile cProfile runpy doctest idlelib IPython \
            ptpython bpython asyncio pip ensurepip xonsh",
        value_short: "WXQm",
        value_long: "check-hash-based-pycs",
        flags: "bBdEhiIOPqRsStuvVx",
        ..DEFAULT_INTERPRETER
    },
    Interpreter {
        names: "node nodejs iojs electron tsx ts-node babel-node qjs",
        code_short: "epr",
        code_long: "eval print require import loader experimental-loader inspect inspect-brk \
            inspect-wait inspect-port run env-file env-file-if-exists openssl-config \
            snapshot-blob build-snapshot experimental-config-file \
            experimental-default-config-file preload",
        value_short: "C",
        value_long: "allow-fs-read allow-fs-write build-snapshot-config conditions cpu-prof-dir \
            cpu-prof-interval cpu-prof-name diagnostic-dir disable-proto disable-warning \
            dns-result-order experimental-default-type experimental-policy \
            experimental-sea-config heap-prof-dir heap-prof-interval heap-prof-name \
            heapsnapshot-near-heap-limit heapsnapshot-signal icu-data-dir input-type \
            inspect-publish-uid localstorage-file max-http-header-size \
            network-family-autoselection-attempt-timeout policy-integrity \
            redirect-warnings report-dir report-directory report-filename report-signal \
            secure-heap secure-heap-min test-concurrency test-name-pattern test-reporter \
            test-reporter-destination test-shard test-timeout title tls-cipher-list \
            tls-keylog trace-event-categories trace-event-file-pattern \
            trace-require-module tsconfig unhandled-rejections use-largepages v8-pool-size \
            watch-path",
        flags: "cihv",
        ..DEFAULT_INTERPRETER
    },
    Interpreter {
        names: "bun",
        code_short: "epr",
        code_long: "eval print preload require import env-file inspect",
        code_operands: "exec",
        value_short: "c",
        ..DEFAULT_INTERPRETER
    },
    Interpreter {
        names: "deno",
        code_long: "eval inspect inspect-brk inspect-wait preload import-map",
        code_operands: "eval",
        ..DEFAULT_INTERPRETER
    },
    Interpreter {
        names: "perl raku rakudo",
        code_short: "eEMmd",
        value_short: "ICF",
        flags: "acfhlnpsStTuUvVwWX0ix",
        ..DEFAULT_INTERPRETER
    },
    Interpreter {
        names: "ruby jruby truffleruby irb",
        code_short: "er",
        code_long: "require",
        value_short: "ICEFKTWx",
        value_long: "encoding external-encoding internal-encoding",
        flags: "acdhlnpsSUvwy0i",
        ..DEFAULT_INTERPRETER
    },
    Interpreter {
        names: "php php-cgi hhvm",
        code_short: "rBREdcz",
        code_long: "run process-code process-begin process-end define php-ini zend-extension",
        value_short: "fFSt",
        flags: "aCehHilmnqsvw",
        ..DEFAULT_INTERPRETER
    },
    Interpreter {
        names: "lua luajit texlua luau",
        code_short: "el",
        flags: "iEvW",
        ..DEFAULT_INTERPRETER
    },
    Interpreter {
        names: "awk gawk mawk nawk original-awk goawk sed gsed m4",
        always_runs_code: true,
        ..DEFAULT_INTERPRETER
    },
    Interpreter {
        names: "vi vim nvim view ex ed emacs nano less more man gdb lldb dc gnuplot irb \
            jshell ghci iex script rlwrap osascript wscript cscript mshta rundll32 \
            regsvr32 msiexec",
        always_runs_code: true,
        ..DEFAULT_INTERPRETER
    },
    Interpreter {
        names: "julia octave r rscript groovy scala elixir guile racket sbcl clisp ecl ocaml \
            swipl ghc runghc erl clojure bb crystal tclsh wish dart kotlin swift psysh \
            coffee lein",
        code_short: "eELgcxprl",
        code_long: "eval load print rpc-eval expression command",
        code_words: "eval run",
        options_anywhere: true,
        ..DEFAULT_INTERPRETER
    },
    Interpreter {
        names: "java javaw",
        code_operands: "-javaagent: -agentlib: -agentpath: -xx:onerror= -xx:onoutofmemoryerror= \
            -xrunjdwp:",
        options_anywhere: true,
        ..DEFAULT_INTERPRETER
    },
    Interpreter {
        names: "find gfind bfs fd fdfind",
        code_short: "xX",
        code_long: "exec exec-batch",
        code_words: "exec execdir ok okdir delete fprint fprintf fprint0 fls",
        options_anywhere: true,
        ..DEFAULT_INTERPRETER
    },
    Interpreter {
        names: "git hub",
        code_short: "cu",
        code_long: "exec-path config-env upload-pack receive-pack exec config git-dir work-tree \
            namespace template extcmd open-files-in-pager",
        code_operands: "ext:: bisect filter-branch submodule difftool mergetool",
        options_anywhere: true,
        ..DEFAULT_INTERPRETER
    },
    Interpreter {
        names: "hg svn cvs bzr",
        code_long: "config config-option ssh diff-cmd editor-cmd",
        code_words: "e",
        options_anywhere: true,
        ..DEFAULT_INTERPRETER
    },
    Interpreter {
        names: "tar bsdtar gtar",
        code_short: "IF",
        code_long: "checkpoint-action use-compress-program to-command info-script \
            new-volume-script rsh-command rmt-command",
        options_anywhere: true,
        ..DEFAULT_INTERPRETER
    },
    Interpreter {
        names: "rsync zip scp sftp",
        code_short: "eSo",
        code_long: "rsh rsync-path unzip-command",
        code_words: "TT",
        options_anywhere: true,
        ..DEFAULT_INTERPRETER
    },
    Interpreter {
        names: "ssh autossh mosh sshpass",
        code_short: "F",
        code_operands: "proxycommand= localcommand= knownhostscommand=",
        value_short: "bcDEeIiJLlmOPpQRSWw",
        flags: "46AaCfGgKkMNnqsTtVvXxYy",
        options_anywhere: true,
        code_after: Some(1),
        ..DEFAULT_INTERPRETER
    },
    Interpreter {
        names: "socat",
        code_operands: "exec: system: shell:",
        options_anywhere: true,
        ..DEFAULT_INTERPRETER
    },
    Interpreter {
        names: "nc ncat netcat",
        code_short: "ec",
        code_long: "exec sh-exec lua-exec",
        options_anywhere: true,
        ..DEFAULT_INTERPRETER
    },
    Interpreter {
        names: "sqlite sqlite3 psql mysql mariadb duckdb mongo mongosh clickhouse-client",
        code_short: "ce",
        code_long: "eval execute command cmd init",
        code_words: "cmd init",
        options_anywhere: true,
        has_dot_commands: true,
        ..DEFAULT_INTERPRETER
    },
    Interpreter {
        names: "kubectl oc crictl ctr",
        code_operands: "exec debug run cp",
        options_anywhere: true,
        ..DEFAULT_INTERPRETER
    },
    Interpreter {
        names: "make gmake bmake cmake ninja just task",
        code_short: "EP",
        code_long: "eval shell command",
        code_operands: "shell= .shellflags=",
        options_anywhere: true,
        ..DEFAULT_INTERPRETER
    },
    Interpreter {
        names: "tcpdump nmap openssl wget curl",
        code_short: "zK",
        code_long: "script use-askpass engine config",
        code_words: "engine provider provider-path",
        options_anywhere: true,
        ..DEFAULT_INTERPRETER
    },
];

pub(super) const WRAPPERS: &[WrapperProgram] = &[
    WrapperProgram {
        names: "env genv",
        assignments: true,
        code_short: "S",
        code_long: "split-string",
        value_short: "uCa",
        value_long: "unset chdir argv0",
        flags: "i0v",
        flags_long: "ignore-environment null debug",
        ..DEFAULT_WRAPPER
    },
    WrapperProgram {
        names: "timeout gtimeout",
        operands: 1,
        value_short: "ks",
        value_long: "kill-after signal",
        flags: "fpv",
        flags_long: "foreground preserve-status verbose",
        ..DEFAULT_WRAPPER
    },
    WrapperProgram {
        names: "nice gnice ionice chrt taskset numactl cpulimit prlimit",
        value_short: "ncpPl",
        value_long: "adjustment class classdata",
        ..DEFAULT_WRAPPER
    },
    WrapperProgram {
        names: "sudo doas pkexec gosu su-exec setpriv capsh chpst",
        assignments: true,
        code_short: "si",
        code_long: "shell login edit",
        value_short: "ugCDhpRrtTU",
        value_long: "user group chdir host prompt chroot role type",
        ..DEFAULT_WRAPPER
    },
    WrapperProgram {
        names: "setsid nohup",
        flags: "cfwVh",
        flags_long: "ctty fork wait",
        ..DEFAULT_WRAPPER
    },
    WrapperProgram {
        names: "xargs gxargs",
        value_short: "IaEdLnPs",
        value_long: "arg-file delimiter max-args max-procs max-chars replace",
        ..DEFAULT_WRAPPER
    },
    WrapperProgram {
        names: "chroot flock direnv faketime with-contenv",
        operands: 1,
        code_short: "c",
        code_long: "command",
        value_short: "wE",
        value_long: "userspec groups timeout",
        ..DEFAULT_WRAPPER
    },
    WrapperProgram {
        names: "run time gtime stdbuf gstdbuf unbuffer setarch linux64 linux32 \
            i386 x86_64 catchsegv exec command builtin strace ltrace valgrind unshare \
            nsenter systemd-run systemd-inhibit dbus-run-session dbus-launch firejail \
            bwrap proot fakeroot fakechroot tini dumb-init s6-setuidgid setuidgid \
            softlimit entr start-stop-daemon caffeinate arch xvfb-run torsocks proxychains \
            proxychains4 tsocks ld.so busybox toybox coreutils hexec bundle rbenv pyenv \
            nodenv asdf mise volta fnm dotenv doppler op infisical chamber aws-vault \
            envchain dotenvx",
        value_short: "ioeupEPStfn",
        value_long: "input output error library-path preload argv0 format",
        ..DEFAULT_WRAPPER
    },
    WrapperProgram {
        names: "npx pnpx bunx",
        code_short: "c",
        code_long: "call shell-mode node-options script-shell node-arg",
        value_short: "pwn",
        value_long: "package workspace prefix registry cache userconfig",
        flags: "yqs",
        flags_long: "yes no quiet silent offline prefer-offline ignore-existing bun",
        ..DEFAULT_WRAPPER
    },
    WrapperProgram {
        names: "npm pnpm yarn bun",
        subcommands: "exec; x; dlx",
        code_short: "c",
        code_long: "call shell-mode node-options script-shell node-arg",
        value_short: "pwn",
        value_long: "package workspace prefix registry cache userconfig",
        flags: "yqs",
        flags_long: "yes no quiet silent offline prefer-offline ignore-existing bun",
        ..DEFAULT_WRAPPER
    },
    WrapperProgram {
        names: "uv",
        subcommands: "run; tool run",
        value_short: "pw",
        value_long: UV_VALUE_OPTIONS,
        flags: "qvn",
        flags_long: "quiet verbose no-cache offline isolated frozen locked no-sync no-project \
            script",
        ..DEFAULT_WRAPPER
    },
    WrapperProgram {
        names: "uvx",
        value_short: "pw",
        value_long: UV_VALUE_OPTIONS,
        flags: "qvn",
        flags_long: "quiet verbose no-cache offline isolated frozen locked no-sync no-project \
            script",
        ..DEFAULT_WRAPPER
    },
    WrapperProgram {
        names: "pipx poetry pipenv pdm hatch rye conda mamba micromamba",
        subcommands: "run; exec",
        value_short: "npC",
        value_long: "spec python name prefix directory pip-args project",
        ..DEFAULT_WRAPPER
    },
    WrapperProgram {
        names: "nix nix-shell guix flatpak snap distrobox toolbox lxc",
        code_short: "c",
        code_long: "run command expr",
        value_short: "pE",
        ..DEFAULT_WRAPPER
    },
    WrapperProgram {
        names: "kubectl oc crictl ctr",
        subcommands: "exec; debug; run; cp",
        value_short: "nc",
        value_long: "namespace container context",
        ..DEFAULT_WRAPPER
    },
];

const UV_VALUE_OPTIONS: &str = "with with-editable with-requirements python from index index-url default-index \
            extra-index-url project directory env-file extra group package cache-dir \
            config-file refresh-package prerelease resolution";

pub(super) const CONTAINER_PROGRAMS: &str =
    "docker podman nerdctl finch docker-compose podman-compose buildah";

/// Subcommands that start a new or existing container.
pub(super) const CONTAINER_COMMANDS: &str = "run create start mcp version info";

/// Options of `docker run` without a value; all others take one.
pub(super) const BOOLEAN_RUN_FLAGS: &str = "detach disable-content-trust help init interactive no-healthcheck \
            oom-kill-disable publish-all quiet read-only rm sig-proxy tty replace \
            tls-verify no-hosts no-hostname rmi passwd read-only-tmpfs debug attach-all";

/// Options that give a container access to the host.
pub(super) const HOST_ACCESS_FLAGS: &str = "volume mount privileged device device-cgroup-rule device-read-bps cap-add \
            security-opt pid volumes-from cgroup-parent env-file env-host runtime \
            use-api-socket group-add host context config rootfs volume-driver \
            sysctl";

/// Whether `word` is one of `list`.
pub(super) fn contains_word(list: &str, word: &str) -> bool {
    list.split_ascii_whitespace().any(|it| it == word)
}

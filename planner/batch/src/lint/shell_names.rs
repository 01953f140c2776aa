//! Variables that a shell sets itself, so that no script has to (bash(1), Shell Variables).

/// Their names, in order, but for those that begin with [`OF_BASH`].
const NAMES: &[&str] = &[
    "COLUMNS",
    "COMP_CWORD",
    "COMP_LINE",
    "COMP_POINT",
    "COMP_TYPE",
    "COMP_WORDS",
    "COPROC",
    "DIRSTACK",
    "EPOCHREALTIME",
    "EPOCHSECONDS",
    "EUID",
    "FUNCNAME",
    "GROUPS",
    "HISTCMD",
    "HOSTNAME",
    "HOSTTYPE",
    "IFS",
    "LINENO",
    "LINES",
    "MACHTYPE",
    "MAPFILE",
    "OLDPWD",
    "OPTARG",
    "OPTERR",
    "OPTIND",
    "OSTYPE",
    "PATH",
    "PIPESTATUS",
    "PPID",
    "PS4",
    "PWD",
    "RANDOM",
    "READLINE_LINE",
    "READLINE_POINT",
    "REPLY",
    "SECONDS",
    "SHELL",
    "SHELLOPTS",
    "SHLVL",
    "SRANDOM",
    "TERM",
    "UID",
    "_",
];

/// How the names of all others begin: `BASH_SOURCE`, `BASHPID`, `BASH`.
const OF_BASH: &str = "BASH";

/// Whether a shell gives a variable its value: by itself, or by a builtin that was given no name.
pub(super) fn is_of_shell(name: &str) -> bool {
    name.starts_with(OF_BASH) || NAMES.binary_search(&name).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_in_order() {
        assert!(NAMES.is_sorted());
        assert!(["PIPESTATUS", "_", "BASH", "BASH_REMATCH", "BASHPID"].into_iter().all(is_of_shell));
        assert!(!["", "newest", "NODES", "SHELLS"].into_iter().any(is_of_shell));
    }
}

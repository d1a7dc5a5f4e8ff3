//! `millstream man`: the manual pages, out of the definitions that arguments are parsed by.

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};
use millstream::program::closest;

use crate::arguments::Arguments;
use crate::failure::{Failure, fail, usage};
use crate::output::print;

/// Exit codes, as in docs/commands.md.
const EXIT_CODES: [(&str, &str); 4] = [
    ("0", "done; also if the reader of standard output has gone away"),
    ("1", "the data or the run failed, or a test has"),
    ("2", "wrong SQL, option or setting"),
    ("130", "stopped by Ctrl-C, SIGTERM or SIGHUP"),
];

/// Files that the shell uses.
const FILES: [(&str, &str); 1] = [(
    "$XDG_STATE_HOME/millstream/history, or ~/.millstream_history",
    "the statements that were typed into the shell",
)];

/// Writes the manual page of the program, or of one of its commands.
pub(crate) fn page(command: Option<&str>) -> Result<(), Failure> {
    let mut whole = Arguments::command();
    whole.build();
    let page = match command {
        None => whole.clone(),
        Some(name) => {
            let shown: Vec<&Command> =
                whole.get_subcommands().filter(|command| !command.is_hide_set()).collect();
            let names: Vec<&str> = shown.iter().map(|command| command.get_name()).collect();
            let found = shown.into_iter().find(|command| command.get_name() == name).cloned();
            let help = match closest(name, names.iter().copied()) {
                Some(meant) => format!("did you mean {meant}?"),
                None => format!("the commands are {}", names.join(", ")),
            };
            let unknown = || usage(&format!("there is no command {name}\n  help: {help}"));
            found.ok_or_else(unknown)?.display_name(format!("millstream-{name}"))
        }
    };
    let mut text = Vec::new();
    let source = concat!("millstream ", env!("CARGO_PKG_VERSION"));
    let written = Man::new(page).source(source).manual("Millstream").render(&mut text);
    written.map_err(|e| fail(&format!("the manual page: {e}")))?;
    let mut text = String::from_utf8_lossy(&text).into_owned();
    if command.is_none() {
        text += &list("EXIT STATUS", &EXIT_CODES);
        text += &list("FILES", &FILES);
    }
    print(&text)
}

/// A section of words, each with what it means.
fn list(title: &str, entries: &[(&str, &str)]) -> String {
    let mut roff = Roff::new();
    roff.control("SH", [title]);
    for (word, meaning) in entries {
        let (word, meaning): (Inline, Inline) = (bold(*word), roman(*meaning));
        roff.control("TP", []).text([word]).text([meaning]);
    }
    roff.to_roff()
}

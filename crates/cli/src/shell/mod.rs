//! `millstream` alone: statements are executed as they are typed, in one session.
//!
//! On a terminal there are lines to edit, a history and completion. Otherwise statements are read
//! as they come, and the first that fails ends the program.

mod complete;
mod history;
mod interrupt;
mod keys;
mod options;
mod split;
mod statements;

use std::cell::RefCell;
use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, ErrorKind, IsTerminal, Read, Write, stdin, stdout};
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::rc::Rc;

use clap::CommandFactory;
use millstream::Session;
use millstream::program::declaration::literal;
use millstream::program::{SessionControl, harmless};
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{Behavior, Config, Editor, Event, EventHandler};

use crate::arguments::{Arguments, Format, Output};
use crate::console::note;
use crate::failure::{Failure, fail, usage};
use crate::output::{print, reader_is_gone};
use crate::run::not_utf8;
use crate::screen::rows_go_to;
use crate::signals::discard_typed;
use complete::{Completion, Names};
use history::History;
use interrupt::Interrupts;
use keys::{LINE_BYTES_MAX, LineLimit};
use split::Splitter;
use statements::Statements;

const PROMPT: &str = "millstream> ";
const MORE: &str = "       ...> ";

/// The longest statement that is typed or piped in.
const STATEMENT_BYTES_MAX: usize = 16 << 20;

/// Of what is typed or pasted: the editor does not say where.
const NOT_UTF8: &str = "error: expected SQL in UTF-8, and what was typed is not; it was left out\n  \
     help: convert it, for example with iconv -f ISO-8859-1 -t UTF-8";

const HELP: &str = "\
Statements end with a semicolon and may take several lines:
  CREATE TABLE …;  CREATE VIEW …;  SELECT …;  INSERT INTO …;  SET 'key' = 'value';
  SELECT … FROM 'events.csv';       a file needs no CREATE TABLE
  SHOW TABLES;  SHOW VIEWS;  SHOW CREATE TABLE t;  DESCRIBE table;  DESCRIBE 'file';
  SHOW FUNCTIONS LIKE 'sub%';       functions, each with an example
  SET;  RESET 'key';                the settings, and their first values
  EXPLAIN SELECT …;                 the plan
  EXPLAIN ANALYZE SELECT …;         runs the query: its plan, with rows and times
Commands stand on a line of their own:
  \\d          tables and views        \\d NAME     columns of a table or a file
  \\i FILE     the statements of a file
  \\timing     numbers of records and seconds after each query, on or off
  \\format F   how rows are written: table, csv or ndjson
  \\x          a line for each value in tables, on or off
  \\o FILE     rows go to a file, and without FILE to the terminal again
  \\e          the last statement in $VISUAL or $EDITOR, and what it has become is executed
  \\?          this help               \\q          leaves, as Ctrl-D does
Tab completes words, the arrows up and down are the history, and Ctrl-C ends a query that runs.";

/// Runs the shell until its input ends.
pub(crate) fn run() -> Result<(), Failure> {
    let interrupts = Interrupts::listen().map_err(|e| fail(&e))?;
    let mut session = Session::new(".");
    let output = Output { format: Format::Table, delimiter: None, expanded: false };
    if stdin().is_terminal() {
        let statements = Statements::new(session, output, interrupts, true);
        Shell { statements, last: String::new() }.interactive()
    } else {
        session.script_from_standard_input();
        let statements = Statements::new(session, output, interrupts, false);
        Shell { statements, last: String::new() }.piped()
    }
}

/// Next step after a line of input.
enum Next {
    Go,
    Leave,
}

struct Shell {
    statements: Statements,
    /// Text typed last.
    last: String,
}

impl Shell {
    /// Reads lines from a terminal.
    fn interactive(mut self) -> Result<(), Failure> {
        let names = Rc::new(RefCell::new(Names::of(self.statements.session())));
        let limit = LineLimit::default();
        let mut editor = editor(names.clone(), limit.clone())?;
        let history = History::open(&mut editor);
        if stdout().is_terminal() {
            let version = env!("CARGO_PKG_VERSION");
            print(&format!("Millstream {version}: statements end with ;  \\? helps, \\q leaves"))?;
        }
        let mut splitter = Splitter::default();
        loop {
            let prompt = if splitter.is_empty() { PROMPT } else { MORE };
            match editor.readline(prompt) {
                Ok(_) if limit.has_left_out() => {
                    splitter = Splitter::default();
                    note(&format!(
                        "error: the line is longer than {LINE_BYTES_MAX} bytes, and was left out\n  \
                         help: paste it, or put it into a file and write \\i FILE"
                    ));
                }
                Ok(line) => {
                    let line = if splitter.is_empty() { worded(line) } else { line };
                    let command = splitter.is_empty() && line.trim_start().starts_with('\\');
                    let whole = match command {
                        true => Some(line.trim().to_string()),
                        false => splitter.take(&line),
                    };
                    let Some(text) = whole else { continue };
                    let text = text.trim_end();
                    if !text.trim().is_empty() {
                        history.add(&mut editor, text);
                    }
                    match if command { self.command(text)? } else { self.execute(text) } {
                        Next::Go => *names.borrow_mut() = Names::of(self.statements.session()),
                        Next::Leave => return Ok(()),
                    }
                }
                // Ctrl-C leaves out what was typed.
                Err(ReadlineError::Interrupted) => {
                    limit.has_left_out();
                    splitter = Splitter::default();
                }
                Err(ReadlineError::Eof) => return Ok(()),
                Err(ReadlineError::Io(error)) if error.kind() == ErrorKind::InvalidData => {
                    // The rest of what was pasted is no line of its own.
                    discard_typed();
                    limit.has_left_out();
                    splitter = Splitter::default();
                    note(&NOT_UTF8);
                }
                Err(error) => return Err(fail(&format!("the terminal: {error}"))),
            }
            if splitter.bytes() > STATEMENT_BYTES_MAX {
                splitter = Splitter::default();
                note(&too_long());
            }
        }
    }

    /// Executes statements on a terminal. What goes wrong has been said, and the shell goes on.
    fn execute(&mut self, text: &str) -> Next {
        self.last = text.to_string();
        let _ = self.statements.execute(text, "<shell>");
        Next::Go
    }

    /// Reads statements from a pipe or a file, and executes each when it is complete. Ends when
    /// whoever reads the output has gone away.
    fn piped(mut self) -> Result<(), Failure> {
        let (mut input, mut splitter) = (stdin().lock(), Splitter::default());
        loop {
            let mut line = Vec::new();
            let limit = (STATEMENT_BYTES_MAX + 1) as u64;
            let read = input.by_ref().take(limit).read_until(b'\n', &mut line);
            let read = read.map_err(|e| fail(&format!("standard input: {e}")))?;
            let line = String::from_utf8(line)
                .map_err(|error| not_utf8("<standard input>", splitter.next_line(), &error))?;
            if read == 0 && splitter.is_empty() && splitter.line() == 1 {
                let help = Arguments::command().render_help();
                return Err(usage(&format!("standard input is empty, and no terminal\n\n{help}")));
            }
            let command = splitter.is_empty() && line.starts_with('\\');
            let first = splitter.line();
            let whole = match read {
                0 => splitter.rest(),
                _ if command => {
                    splitter.skip_line();
                    match self.command(line.trim())? {
                        Next::Go if !self.is_over() => continue,
                        Next::Go | Next::Leave => return Ok(()),
                    }
                }
                _ => splitter.take(line.strip_suffix('\n').unwrap_or(&line)),
            };
            if splitter.bytes() > STATEMENT_BYTES_MAX {
                return Err(usage(&too_long()));
            }
            if let Some(text) = whole {
                let (text, name) = placed(text, first);
                self.statements.execute(&text, &name)?;
            }
            if read == 0 || self.is_over() {
                return Ok(());
            }
        }
    }

    /// Whether nothing that follows in a pipe is executed.
    fn is_over(&self) -> bool {
        let are_drained = self.statements.are_drained();
        if are_drained {
            note(&"drained: statements that follow are not run");
        }
        are_drained || reader_is_gone()
    }

    /// Executes a command that begins with a backslash.
    fn command(&mut self, line: &str) -> Result<Next, Failure> {
        let (command, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let argument = argument.trim().trim_end_matches(';').trim();
        match (command.trim_end_matches(';'), argument) {
            ("\\q", _) => return Ok(Next::Leave),
            ("\\?" | "\\h" | "\\help", _) => print(HELP)?,
            ("\\timing", other) if !["on", "off", ""].contains(&other) => {
                self.refuse(&format!("\\timing is on or off, not '{other}'"))?;
            }
            ("\\timing", argument) => {
                let on = match argument {
                    "" => !self.statements.timing,
                    argument => argument == "on",
                };
                self.statements.timing = on;
                note(&format!("timing is {}", if on { "on" } else { "off" }));
            }
            ("\\format", format) => match self.statements.set_format(format) {
                Ok(()) => note(&format!("rows are written as {format}")),
                Err(message) => self.refuse(&message)?,
            },
            ("\\x", _) => {
                let on = self.statements.toggle_expanded();
                note(&format!("tables have a line for each {}", if on { "value" } else { "row" }));
            }
            ("\\o", "") => rows_go_to(None),
            ("\\o", path) => match File::create(path_of(path)) {
                Ok(file) => rows_go_to(Some(file)),
                Err(error) => self.refuse(&format!("cannot write {path}: {error}"))?,
            },
            ("\\e", "") if self.statements.interactive => match edited(&self.last) {
                Ok(text) => {
                    self.last.clone_from(&text);
                    self.described(&text)?;
                }
                Err(error) => self.refuse(&format!("the editor: {error}"))?,
            },
            ("\\d", "") => self.described("SHOW TABLES")?,
            ("\\d", name) => self.described(&format!("DESCRIBE {}", table_or_file(name)))?,
            ("\\i", "") => self.refuse("\\i names no file\n  help: write \\i FILE")?,
            ("\\i", path) => match self.statements.script(&path_of(path)) {
                Ok(text) => self.told_of(&text, path)?,
                Err(_) if self.statements.interactive => {}
                Err(failure) => return Err(failure),
            },
            (command, _) => {
                self.refuse(&format!("there is no command {command}\n  help: \\? lists them"))?;
            }
        }
        Ok(Next::Go)
    }

    fn described(&mut self, text: &str) -> Result<(), Failure> {
        self.told_of(text, "<shell>")
    }

    /// Executes statements that a command stands for.
    fn told_of(&mut self, text: &str, name: &str) -> Result<(), Failure> {
        match self.statements.execute(text, name) {
            Err(_) if self.statements.interactive => Ok(()),
            done => done,
        }
    }

    /// Says what is wrong with a command; in a pipe that ends the program.
    fn refuse(&self, message: &str) -> Result<(), Failure> {
        let failure = usage(&harmless(message));
        if self.statements.interactive { Ok(()) } else { Err(failure) }
    }
}

/// Text after a change in an editor.
fn edited(text: &str) -> io::Result<String> {
    let editor = env::var("VISUAL").or_else(|_| env::var("EDITOR")).unwrap_or("vi".into());
    let path = env::temp_dir().join(format!("millstream-{}.sql", std::process::id()));
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(&path)?;
    // An editor may have options.
    let run = format!("{editor} \"$1\"");
    let status = file
        .write_all(text.as_bytes())
        .and_then(|()| Command::new("sh").args(["-c", &run, "sh"]).arg(&path).status());
    let edited = fs::read_to_string(&path);
    fs::remove_file(&path)?;
    match status?.success() {
        true => edited,
        false => Err(io::Error::other(format!("{editor} has failed"))),
    }
}

/// A path as people write it behind a command: quotes may stand around it, and `~/` is their home.
fn path_of(text: &str) -> String {
    let within = |quote| text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote));
    let path = within('\'').or_else(|| within('"')).unwrap_or(text);
    match (path.strip_prefix("~/"), env::var("HOME")) {
        (Some(rest), Ok(home)) => format!("{home}/{rest}"),
        _ => path.to_string(),
    }
}

/// Subject of a describe command, as written in a statement: a table's name, or a file.
fn table_or_file(name: &str) -> String {
    match !name.starts_with('`') && name.contains(['\'', '.', '/', '*']) {
        true => literal(&path_of(name)),
        false => name.to_string(),
    }
}

/// Translates a word of other shells into the matching command.
fn worded(line: String) -> String {
    match line.trim().trim_end_matches(';').trim_end().to_lowercase().as_str() {
        "quit" | "exit" => "\\q".into(),
        "help" => "\\?".into(),
        _ => line,
    }
}

/// Lines up to which a text of standard input is moved to where it stands there.
const LINES_MOVED_MAX: usize = 10_000;

/// A text moved to line `first` of standard input, so that errors name their places there; with the
/// name of the input.
fn placed(text: String, first: usize) -> (String, String) {
    let name = "<standard input>";
    match first {
        1 => (text, name.into()),
        2..=LINES_MOVED_MAX => ("\n".repeat(first - 1) + &text, name.into()),
        _ => (text, format!("{name} from line {first} on")),
    }
}

fn too_long() -> String {
    format!("a statement has more than {} MB, and was left out", STATEMENT_BYTES_MAX >> 20)
}

fn editor(
    names: Rc<RefCell<Names>>,
    limit: LineLimit,
) -> Result<Editor<Completion, FileHistory>, Failure> {
    let config = Config::builder().history_ignore_space(true).bracketed_paste(true);
    let config = config.completion_type(rustyline::CompletionType::List);
    // Rows may go into a file: what is typed is shown on the terminal all the same.
    let behavior = if stdout().is_terminal() { Behavior::Stdio } else { Behavior::PreferTerm };
    let config = config.behavior(behavior).build();
    let history = FileHistory::with_config(&config);
    let mut editor = Editor::with_history(config, history)
        .map_err(|e| fail(&format!("the terminal cannot be used: {e}")))?;
    editor.set_helper(Some(Completion(names)));
    editor.bind_sequence(Event::Any, EventHandler::Conditional(Box::new(limit)));
    Ok(editor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_may_be_quoted_and_begin_at_home() {
        let home = env::var("HOME").unwrap();
        for (text, path) in [
            ("a b.sql", "a b.sql"),
            ("\"a b.sql\"", "a b.sql"),
            ("'a b.sql'", "a b.sql"),
            ("'", "'"),
            ("~/x.sql", &format!("{home}/x.sql")),
            ("~x.sql", "~x.sql"),
        ] {
            assert_eq!(path_of(text), path);
        }
    }

    #[test]
    fn what_looks_like_a_file_is_described_as_one() {
        for (name, described) in [
            ("events", "events"),
            ("`a.b`", "`a.b`"),
            ("events.csv", "'events.csv'"),
            ("'events'", "'events'"),
            ("logs/*", "'logs/*'"),
            ("it's.csv", "'it''s.csv'"),
        ] {
            assert_eq!(table_or_file(name), described);
        }
    }

    #[test]
    fn words_of_other_shells_need_no_semicolon() {
        for (line, command) in
            [("exit", "\\q"), (" QUIT ; ", "\\q"), ("help", "\\?"), ("SELECT exit", "SELECT exit")]
        {
            assert_eq!(worded(line.into()), command);
        }
    }
}

//! `millstream check`: all mistakes of a script at once.

use millstream::program::{Checked, SessionControl, check, counted};
use millstream::{ErrorKind, Session};
use millstream_arguments::SettingArguments;

use crate::arguments::Script;
use crate::console::{Remarks, note};
use crate::failure::{Failure, failed, usage};
use crate::run::{Text, read_script};

/// Parses and plans a script, and says all that is wrong with it.
pub(crate) fn run(script: &Script, settings: &SettingArguments) -> Result<(), Failure> {
    let Text { name, text, base_dir, .. } = read_script(script)?;
    let mut session = Session::new(base_dir);
    session.read_nothing_once();
    for (key, value) in settings.pairs().map_err(|e| usage(&e))? {
        session.fix_setting(&key, &value).map_err(|e| usage(&e))?;
    }
    let Checked { statements, failures, remarks } = check(&session, &text, &name);
    let run = failures.iter().any(|failure| match failure {
        millstream::Failure::Sql(error) => error.kind == ErrorKind::System,
        _ => false,
    });
    let errors = failures.len() as u64;
    for failure in failures {
        failed(failure);
    }
    Remarks::default().say(&remarks);
    let statements = counted(statements as u64, "statement");
    match errors {
        0 => note(&format!("{name}: {statements}, no errors")),
        _ => note(&format!("{name}: {statements}, {}", counted(errors, "error"))),
    }
    match (errors, run) {
        (0, _) => Ok(()),
        (_, true) => Err(Failure::Run),
        (_, false) => Err(Failure::Usage),
    }
}

//! `millstream check`: all mistakes of a script at once.

use std::path::Path;

use millstream::program::saved::{Verdict, against};
use millstream::program::{Checked, Executed, SessionControl, check, counted, parse_script};
use millstream::{ErrorKind, Session};
use millstream_arguments::SettingArguments;

use crate::arguments::{Script, checkpoint_path};
use crate::console::{Remarks, note};
use crate::failure::{Failure, failed, usage};
use crate::output::print;
use crate::run::{Text, read_script};

/// Parses and plans a script, and says all that is wrong with it.
pub(crate) fn run(
    script: &Script,
    against: Option<&Path>,
    settings: &SettingArguments,
) -> Result<(), Failure> {
    let Text { name, text, base_dir, .. } = read_script(script)?;
    let mut session = Session::new(base_dir);
    session.read_nothing_once();
    for (key, value) in settings.pairs().map_err(|e| usage(&e))? {
        session.fix_setting(&key, &value).map_err(|e| usage(&e))?;
    }
    if let Some(dir) = against {
        // Files get their names with checkpoints, and not at the end alone.
        let path = checkpoint_path("--against", dir).map_err(|e| usage(&e))?;
        session.fix_setting("checkpoint.path", &path).map_err(|e| usage(&e))?;
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
        (0, _) => against.map_or(Ok(()), |dir| compare(session, &text, &name, dir)),
        (_, true) => Err(Failure::Run),
        (_, false) => Err(Failure::Usage),
    }
}

/// Says how the stages of a script's query would go on from the latest checkpoint in a directory.
fn compare(mut session: Session, text: &str, name: &str, dir: &Path) -> Result<(), Failure> {
    let statements = parse_script(text, name).map_err(|e| failed(millstream::Failure::Sql(e)))?;
    let mut fits = true;
    for statement in &statements {
        let Executed::Query(planned) = session.execute(statement).map_err(failed)? else {
            continue;
        };
        for (stage, verdict) in against(&session, &planned, dir, None).map_err(failed)? {
            fits &= !matches!(verdict, Verdict::Changed(_));
            print(&match verdict {
                Verdict::Kept => format!("{stage}: kept"),
                Verdict::New => format!("{stage}: new (starts empty)"),
                Verdict::Gone => format!("{stage}: gone"),
                Verdict::Changed(reason) => format!("{stage}: changed: {reason}"),
            })?;
        }
    }
    match fits {
        true => Ok(()),
        false => {
            note(&"a changed stage starts empty if `run` is told so with --allow-new STAGE");
            Err(Failure::Run)
        }
    }
}

//! Members of a job as child processes: the same program, or another, started on this machine.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

use super::failure::{Cause, ProcessFailure};
use super::launcher::{Invitation, Launched, Launcher};
use super::limits;

/// A launcher of child processes of this program. Each takes part with
/// [`take_part`](super::take_part).
#[derive(Debug, Clone)]
pub struct Program {
    /// Path of the program.
    pub path: PathBuf,
    /// Arguments of the program. All further data come over the standard input.
    pub arguments: Vec<OsString>,
}

impl Launcher for Program {
    /// Starts a process and hands over its invitation. The process has its own process group:
    /// Ctrl-C at the terminal reaches process 0 only, which stops the others.
    fn launch(&self, invitation: &Invitation) -> Result<Option<Box<dyn Launched>>, ProcessFailure> {
        let failure = |what: &str, error: io::Error| {
            let why = limits::explained(&format!("could not be started: {what}: {error}"));
            ProcessFailure::new(invitation.process, Cause::Start(why))
        };
        let child = Command::new(&self.path)
            .args(&self.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|e| failure(&self.path.display().to_string(), e))?;
        let (process, pid) = (invitation.process, child.id());
        tracing::debug!(pid, "process {process} is started");
        let mut started = ChildProcess { child, ended: None, killed: false };
        let sent = started.child.stdin.as_mut().map_or(Ok(()), |stdin| {
            let line = invitation.line()?;
            stdin.write_all(line.as_bytes())
        });
        match sent {
            // It has ended already: how, its end says.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                started.kill();
                Err(failure("its standard input", error))
            }
            Ok(()) | Err(_) => Ok(Some(Box::new(started))),
        }
    }
}

/// A started process. Its standard input stays open for as long as process 0 lives.
#[derive(Debug)]
struct ChildProcess {
    child: Child,
    ended: Option<ExitStatus>,
    /// True for a process killed here, whose exit status then means nothing.
    killed: bool,
}

impl ChildProcess {
    fn status(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended
    }
}

impl Launched for ChildProcess {
    fn has_ended(&mut self) -> bool {
        self.status().is_some()
    }

    fn end(&mut self) -> Option<String> {
        let status = self.status()?;
        (!self.killed && status.code() != Some(STOPPED)).then(|| words(status))
    }

    fn kill(&mut self) {
        if self.status().is_none() {
            self.killed = true;
            let _ = self.child.kill();
            self.ended = self.child.wait().ok();
        }
    }
}

/// Exit code of a process that stopped because it was told to, or because process 0 is gone.
pub const STOPPED: i32 = 3;

/// How a process ended.
fn words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => match signal_name(signal) {
            Some(name) => format!("was killed by signal {signal} ({name})"),
            None => format!("was killed by signal {signal}"),
        },
        (None, None) => "ended".to_string(),
    }
}

fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGHUP => "SIGHUP",
        libc::SIGILL => "SIGILL",
        libc::SIGINT => "SIGINT",
        libc::SIGKILL => "SIGKILL",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGTERM => "SIGTERM",
        libc::SIGXCPU => "SIGXCPU",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use millstream_fabric::setup::Token;

    use super::super::launcher::Started;
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn shell(script: &str) -> Program {
        Program { path: "/bin/sh".into(), arguments: vec!["-c".into(), script.into()] }
    }

    fn start(program: &Program) -> Result<Started, ProcessFailure> {
        let (address, token) = ("127.0.0.1:4242".into(), Token::new([0xa5; 32]));
        let started = Started::default();
        started.start(program, &Invitation { address, process: 3, token }).map(|()| started)
    }

    #[test]
    fn how_a_process_ended_is_told_in_words() {
        for (script, words) in [
            ("exit 4", "ended with exit code 4"),
            ("kill -9 $$", "was killed by signal 9 (SIGKILL)"),
            ("kill -SEGV $$", "was killed by signal 11 (SIGSEGV)"),
        ] {
            let started = start(&shell(script)).unwrap();
            assert_eq!(started.end_of(3, LONG).unwrap(), words);
            assert_eq!(started.ended().unwrap(), (3, words.to_string()));
        }
        let missing = Program { path: "/nonexistent/program".into(), arguments: vec![] };
        let Err(failure) = start(&missing) else { panic!("it was started") };
        assert!(failure.to_string().contains("process 3 could not be started"), "{failure}");
    }

    #[test]
    fn a_process_learns_that_process_0_is_gone_from_the_end_of_its_input() {
        let mut child = Command::new("/bin/sh");
        child.args(["-c", "cat > /dev/null; exit 7"]).stdin(Stdio::piped());
        let child = child.spawn().unwrap();
        let mut process = ChildProcess { child, ended: None, killed: false };
        assert_eq!(process.end(), None);
        drop(process.child.stdin.take());
        let start = Instant::now();
        while !process.has_ended() {
            assert!(start.elapsed() < LONG);
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(process.end().unwrap(), "ended with exit code 7");
    }

    #[test]
    fn who_does_not_end_is_killed_and_leaves_no_zombie() {
        let pid = std::env::temp_dir().join(format!("millstream-pid-{}", std::process::id()));
        let started = start(&shell(&format!(
            "echo $$ > {0}.new; mv {0}.new {0}; exec sleep 1000",
            pid.display()
        )))
        .unwrap();
        let begun = Instant::now();
        let number = loop {
            match std::fs::read_to_string(&pid) {
                Ok(number) => break number,
                Err(_) => assert!(begun.elapsed() < LONG),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        std::fs::remove_file(&pid).unwrap();
        started.end_all(Duration::from_millis(20));
        assert_eq!(started.end_of(3, LONG), None);
        assert!(!std::path::Path::new(&format!("/proc/{}", number.trim())).exists());
    }
}

//! The child processes of the coordinator: hands out invitations, watches the processes, and ends
//! them.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use millstream_fabric::setup::Token;
use serde::{Deserialize, Serialize};

use super::failure::{Cause, Failure};
use super::limits;

/// The program of each further process; it takes part with [`Node::serve`](super::Node::serve).
#[derive(Debug, Clone)]
pub struct Program {
    /// Path of the program.
    pub path: PathBuf,
    /// Arguments of the program. All further data come over the standard input.
    pub arguments: Vec<OsString>,
}

/// The invitation of a started process: a line on its standard input, hidden from all other
/// processes. The input stays open for as long as process 0 lives.
#[derive(Debug, Clone, Copy)]
pub struct Invitation {
    /// Where process 0 listens.
    pub address: SocketAddr,
    /// Number of the process, from 1.
    pub process: usize,
    /// The job's token.
    pub token: Token,
}

#[derive(Serialize, Deserialize)]
struct Line {
    address: SocketAddr,
    process: u32,
    token: String,
}

/// Bytes of an invitation at the most.
const LINE_BYTES_MAX: usize = 1024;

impl Invitation {
    fn line(&self) -> io::Result<String> {
        let Invitation { address, process, token } = *self;
        let line = Line { address, process: process as u32, token: hex::encode(token.bytes()) };
        Ok(serde_json::to_string(&line)? + "\n")
    }

    /// Reads an invitation. Where this is something else, the error is how many bytes have been
    /// read.
    pub fn read(input: &mut impl Read) -> Result<Invitation, usize> {
        let mut line = Vec::new();
        let mut byte = [0];
        while line.len() < LINE_BYTES_MAX && input.read_exact(&mut byte).is_ok() && byte != *b"\n" {
            line.push(byte[0]);
        }
        Invitation::decode(&line).ok_or(line.len())
    }

    fn decode(line: &[u8]) -> Option<Invitation> {
        let line: Line = serde_json::from_slice(line).ok()?;
        let token: [u8; 32] = hex::decode(&line.token).ok()?.try_into().ok()?;
        let (address, process) = (line.address, line.process as usize);
        (process > 0).then_some(Invitation { address, process, token: Token::new(token) })
    }
}

/// The processes that were started, by number; number 0 is this one.
#[derive(Debug, Default)]
pub(super) struct Children(Mutex<Vec<Option<Started>>>);

#[derive(Debug)]
struct Started {
    child: Child,
    ended: Option<ExitStatus>,
    /// True for a process killed here, whose exit status then means nothing.
    killed: bool,
}

impl Started {
    fn status(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended
    }

    /// How it ended, if it did and the way says why.
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

/// How often the end of a process is looked for.
const LOOK: Duration = Duration::from_millis(5);

impl Children {
    fn lock(&self) -> MutexGuard<'_, Vec<Option<Started>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a process and hands over its invitation. The process has its own process group:
    /// Ctrl-C at the terminal reaches process 0 only, which stops the others.
    pub(super) fn start(&self, program: &Program, invitation: &Invitation) -> Result<(), Failure> {
        let failure = |what: &str, error: io::Error| {
            let why = limits::explained(&format!("could not be started: {what}: {error}"));
            Failure::new(invitation.process, Cause::Start(why))
        };
        let mut child = Command::new(&program.path)
            .args(&program.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|e| failure(&program.path.display().to_string(), e))?;
        let told = child.stdin.as_mut().map(|stdin| {
            let line = invitation.line()?;
            stdin.write_all(line.as_bytes())
        });
        // Before anything else can go wrong: what has been started has to be ended.
        let mut children = self.lock();
        let length = children.len().max(invitation.process + 1);
        children.resize_with(length, || None);
        let (process, pid) = (invitation.process, child.id());
        tracing::debug!(pid, "process {process} is started");
        children[invitation.process] = Some(Started { child, ended: None, killed: false });
        match told {
            // It has ended already: how, its end says.
            Some(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Some(Err(error)) => Err(failure("its standard input", error)),
            Some(Ok(())) | None => Ok(()),
        }
    }

    /// How a process ended, if it ends within `patience`: `was killed by signal 9 (SIGKILL)`.
    /// `None` where it was ended from here or stopped as told.
    pub(super) fn end_of(&self, process: usize, patience: Duration) -> Option<String> {
        let deadline = Instant::now() + patience;
        loop {
            {
                let mut children = self.lock();
                let started = children.get_mut(process)?.as_mut()?;
                if started.status().is_some() || Instant::now() >= deadline {
                    return started.end();
                }
            }
            std::thread::sleep(LOOK);
        }
    }

    /// A process that has ended by now, and how.
    pub(super) fn ended(&self) -> Option<(usize, String)> {
        let mut children = self.lock();
        children
            .iter_mut()
            .enumerate()
            .find_map(|(process, started)| Some((process, started.as_mut()?.end()?)))
    }

    /// Ends a process at once.
    pub(super) fn kill(&self, process: usize) {
        if let Some(Some(started)) = self.lock().get_mut(process) {
            started.kill();
        }
    }

    /// Waits for `grace` until all have ended, and ends those that have not. None is left, not even
    /// as a zombie.
    pub(super) fn end_all(&self, grace: Duration) {
        let deadline = Instant::now() + grace;
        while Instant::now() < deadline {
            let left = self.lock().iter_mut().flatten().any(|started| started.status().is_none());
            if !left {
                return;
            }
            std::thread::sleep(LOOK);
        }
        self.lock().iter_mut().flatten().for_each(Started::kill);
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        self.end_all(Duration::ZERO);
    }
}

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
    use super::*;

    fn invitation() -> Invitation {
        let address = SocketAddr::from(([127, 0, 0, 1], 4242));
        Invitation { address, process: 3, token: Token::new([0xa5; 32]) }
    }

    #[test]
    fn an_invitation_is_read_as_it_was_written_and_rubbish_is_none() {
        let line = invitation().line().unwrap();
        let read = Invitation::read(&mut (line.clone() + "more").as_bytes()).unwrap();
        assert_eq!((read.address, read.process), (invitation().address, 3));
        assert!(read.token.matches(&[0xa5; 32]));
        for cut in 0..line.len() - 1 {
            assert_eq!(Invitation::read(&mut &line.as_bytes()[..cut]).unwrap_err(), cut);
        }
        for other in
            ["", "\n", "{}\n", &"x".repeat(10_000), &line.replace("\"process\":3", "\"process\":0")]
        {
            assert!(Invitation::read(&mut other.as_bytes()).is_err(), "{other}");
        }
    }

    fn shell(script: &str) -> Program {
        Program { path: "/bin/sh".into(), arguments: vec!["-c".into(), script.into()] }
    }

    #[test]
    fn how_a_process_ended_is_told_in_words() {
        for (script, words) in [
            ("exit 4", "ended with exit code 4"),
            ("kill -9 $$", "was killed by signal 9 (SIGKILL)"),
            ("kill -SEGV $$", "was killed by signal 11 (SIGSEGV)"),
        ] {
            let children = Children::default();
            children.start(&shell(script), &invitation()).unwrap();
            assert_eq!(children.end_of(3, Duration::from_secs(60)).unwrap(), words);
            assert_eq!(children.ended().unwrap(), (3, words.to_string()));
        }
        let missing = Program { path: "/nonexistent/program".into(), arguments: vec![] };
        let failure = Children::default().start(&missing, &invitation()).unwrap_err();
        assert!(failure.to_string().contains("process 3 could not be started"), "{failure}");
    }

    #[test]
    fn a_process_learns_that_process_0_is_gone_from_the_end_of_its_input() {
        let children = Children::default();
        children.start(&shell("cat > /dev/null; exit 7"), &invitation()).unwrap();
        assert_eq!(children.end_of(3, Duration::ZERO), None);
        drop(children.lock()[3].as_mut().unwrap().child.stdin.take());
        assert_eq!(children.end_of(3, Duration::from_secs(60)).unwrap(), "ended with exit code 7");
    }

    #[test]
    fn who_does_not_end_is_killed_and_leaves_no_zombie() {
        let children = Children::default();
        children.start(&shell("exec sleep 1000"), &invitation()).unwrap();
        let pid = children.lock()[3].as_ref().unwrap().child.id();
        children.end_all(Duration::from_millis(20));
        assert_eq!(children.end_of(3, Duration::from_secs(60)), None);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
}

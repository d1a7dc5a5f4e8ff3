//! The launcher of a job: starts the other processes, or waits for processes that start elsewhere.

use std::io::{self, Read};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use millstream_fabric::setup::Token;
use serde::{Deserialize, Serialize};

use super::failure::ProcessFailure;

/// Starts the other processes of a job.
pub trait Launcher: Send + Sync {
    /// Starts the invited process, which joins with [`Node::join`](super::Node::join). `None` for a
    /// process that starts elsewhere: only the process's connection tells of its end.
    fn launch(&self, invitation: &Invitation) -> Result<Option<Box<dyn Launched>>, ProcessFailure>;
}

/// A started process.
pub trait Launched: Send {
    /// Whether the process has ended.
    fn has_ended(&mut self) -> bool;

    /// How the process ended, in words; `None` for a process that still runs, or was told to end.
    fn end(&mut self) -> Option<String>;

    /// Ends the process at once, and returns when it is gone.
    fn kill(&mut self);
}

/// The invitation of a started process: a line on its standard input, hidden from all other
/// processes. The input stays open for as long as process 0 lives.
#[derive(Debug, Clone)]
pub struct Invitation {
    /// Where process 0 listens, as its [`Transport`](super::Transport) writes addresses.
    pub address: String,
    /// Number of the process, from 1.
    pub process: usize,
    /// The job's token.
    pub token: Token,
}

#[derive(Serialize, Deserialize)]
struct Line {
    address: String,
    process: u32,
    token: String,
}

/// Bytes of an invitation at the most.
const LINE_BYTES_MAX: usize = 1024;

impl Invitation {
    /// The line that [`Invitation::read`] reads.
    pub fn line(&self) -> io::Result<String> {
        let Invitation { address, process, token } = self.clone();
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

/// The started processes, by number; number 0 is this one.
#[derive(Default)]
pub(super) struct Started(Mutex<Vec<Option<Box<dyn Launched>>>>);

/// How often the end of a process is looked for.
const LOOK: Duration = Duration::from_millis(5);

impl Started {
    fn lock(&self) -> MutexGuard<'_, Vec<Option<Box<dyn Launched>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the invited process.
    pub(super) fn start(
        &self,
        launcher: &dyn Launcher,
        invitation: &Invitation,
    ) -> Result<(), ProcessFailure> {
        let launched = launcher.launch(invitation)?;
        let mut all = self.lock();
        let length = all.len().max(invitation.process + 1);
        all.resize_with(length, || None);
        all[invitation.process] = launched;
        Ok(())
    }

    /// How a process ended, if it ends within `patience`: `was killed by signal 9 (SIGKILL)`.
    /// `None` where it was ended from here or stopped as told.
    pub(super) fn end_of(&self, process: usize, patience: Duration) -> Option<String> {
        let deadline = Instant::now() + patience;
        loop {
            {
                let mut children = self.lock();
                let started = children.get_mut(process)?.as_mut()?;
                if started.has_ended() || Instant::now() >= deadline {
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
            let left = self.lock().iter_mut().flatten().any(|started| !started.has_ended());
            if !left {
                return;
            }
            std::thread::sleep(LOOK);
        }
        self.lock().iter_mut().flatten().for_each(|started| started.kill());
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.end_all(Duration::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invitation_is_read_as_it_was_written_and_rubbish_is_none() {
        let address = "127.0.0.1:4242".to_string();
        let invitation = Invitation { address, process: 3, token: Token::new([0xa5; 32]) };
        let line = invitation.line().unwrap();
        let read = Invitation::read(&mut (line.clone() + "more").as_bytes()).unwrap();
        assert_eq!((read.address, read.process), (invitation.address, 3));
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
}

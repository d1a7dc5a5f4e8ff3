//! A file in which process 0 leaves the job's token for the other ranks. All have a user and a
//! directory in common.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use millstream_fabric::setup::Token;
use sha2::{Digest, Sha256};

/// How long to wait for the file, and how often it is looked for.
const PATIENCE: Duration = Duration::from_secs(300);
const LOOK: Duration = Duration::from_millis(20);

/// A file that only this user can read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Meeting {
    path: PathBuf,
}

/// The token that a text stands for.
pub(crate) fn token_of(text: &[u8]) -> Token {
    Token::new(Sha256::digest(text).into())
}

impl Meeting {
    /// For this run of a launcher: on one host in the user's own directory for such files, between
    /// hosts in the working directory, which they share.
    pub(crate) fn of(
        run: &str,
        is_one_host: bool,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Meeting {
        let name = format!(".millstream-{}", hex::encode(&token_of(run.as_bytes()).bytes()[..12]));
        let own = || env("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        let folder = if is_one_host { own() } else { PathBuf::from(".") };
        Meeting { path: folder.join(name) }
    }

    /// Draws the token and leaves it. A file of an earlier run that was killed is replaced.
    pub(crate) fn open(&self) -> Result<Token, String> {
        let failed = |what: &str, e: &dyn std::fmt::Display| {
            format!("cannot {what} {}: {e}\n  help: say --token-file PATH", self.path.display())
        };
        let token = Token::random().map_err(|e| failed("draw a token for", &e))?;
        let fresh = self.path.with_extension(std::process::id().to_string());
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let written = options.open(&fresh).and_then(|mut file| {
            file.write_all(hex::encode(token.bytes()).as_bytes())?;
            fs::rename(&fresh, &self.path)
        });
        written.map_err(|e| failed("write", &e)).map(|()| token)
    }

    /// Waits for the token.
    pub(crate) fn wait(&self) -> Result<Token, String> {
        let begin = Instant::now();
        loop {
            if let Some(token) = self.read() {
                return Ok(token);
            }
            if begin.elapsed() > PATIENCE {
                return Err(format!(
                    "process 0 has left no token in {} for {} s\n  help: start all processes from a \
                     directory that they share, or say --token-file PATH",
                    self.path.display(),
                    PATIENCE.as_secs()
                ));
            }
            thread::sleep(LOOK);
        }
    }

    fn read(&self) -> Option<Token> {
        let found = fs::symlink_metadata(&self.path).ok()?;
        // Others may write into a common directory.
        // SAFETY: it has no preconditions.
        let own = unsafe { libc::geteuid() };
        if !found.is_file() || found.uid() != own || found.mode() & 0o077 != 0 {
            return None;
        }
        let text = fs::read_to_string(&self.path).ok()?;
        Some(Token::new(hex::decode(text).ok()?.try_into().ok()?))
    }

    /// All have joined, or the job has failed.
    pub(crate) fn close(&self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn processes_of_a_user_meet() {
        let folder = std::env::temp_dir().join(format!("meeting-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let env =
            |name: &str| (name == "XDG_RUNTIME_DIR").then(|| folder.to_string_lossy().into_owned());
        let meeting = Meeting::of("slurm-4711-0-", true, &env);
        assert!(meeting.read().is_none());
        let token = meeting.open().unwrap();
        assert_eq!(meeting.wait().unwrap().bytes(), token.bytes());
        // Others can read it.
        fs::set_permissions(&meeting.path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(meeting.read().is_none());
        assert_ne!(meeting.open().unwrap().bytes(), token.bytes(), "another run");
        meeting.close();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        assert_ne!(Meeting::of("slurm-4711-1-", true, &env), meeting);
        fs::remove_dir(folder).unwrap();
    }
}

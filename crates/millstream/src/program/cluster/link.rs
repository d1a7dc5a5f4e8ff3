//! A control connection after its preamble: messages, heartbeats, and noticing that the peer is
//! gone.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Shutdown};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::failure::Cause;
use super::frame::{self, Frames};
use super::transport::Stream;

/// How often each side says that it is still there.
pub const HEARTBEAT: Duration = Duration::from_millis(100);
/// A process that stands still for less is not taken for dead. Time in which this process, or the
/// machine, stood still does not count.
pub const SILENCE_MAX: Duration = Duration::from_secs(2);
/// Without a byte for so long, it is: its last heartbeat may have come some time before it stopped.
/// Whoever says that a process is silent has heard of it, later, from here.
pub(super) const DEAF_MAX: Duration = SILENCE_MAX.saturating_add(HEARTBEAT.saturating_mul(2));
/// How long a reader waits at a time.
const LOOK: Duration = Duration::from_millis(100);

/// A connection, on which all threads send and a single thread reads.
pub(super) struct Link {
    stream: Arc<dyn Stream>,
    /// Held while a message is sent.
    sending: Mutex<()>,
}

impl Link {
    pub(super) fn new(stream: Arc<dyn Stream>) -> Link {
        Link { stream, sending: Mutex::new(()) }
    }

    /// Sends a message. A closed connection is no error here: the reader of the connection reports
    /// the reason.
    pub(super) fn send(&self, message: &impl Serialize) -> io::Result<()> {
        let bytes = frame::encode(message)?;
        let _turn = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        self.write(&bytes);
        Ok(())
    }

    /// Sends a heartbeat, or what may be lost, unless something is being sent at the moment, which
    /// says as much.
    pub(super) fn send_heartbeat(&self, message: &impl Serialize) {
        if let (Ok(bytes), Ok(_turn)) = (frame::encode(message), self.sending.try_lock()) {
            self.write(&bytes);
        }
    }

    /// This end's address and the other end's.
    pub(super) fn hosts(&self) -> [IpAddr; 2] {
        self.stream.hosts()
    }

    /// Ends the connection: the reader on this side ends, too.
    pub(super) fn close(&self) {
        self.stream.close(Shutdown::Both);
    }

    fn write(&self, bytes: &[u8]) {
        if self.stream.write(bytes, SILENCE_MAX).is_err() {
            // Perhaps half a message is sent: the rest of the stream would be unreadable.
            self.stream.close(Shutdown::Write);
        }
    }
}

/// Reads messages until the other side is gone, and says why. Every one goes to `take`. Meanwhile
/// `heartbeat` is sent, so that the other side knows of this one.
pub(super) fn read_all<M: DeserializeOwned, B: Serialize>(
    link: &Link,
    heartbeat: impl Fn() -> B,
    mut take: impl FnMut(M),
) -> Cause {
    let (mut frames, mut silence, mut beat) = (Frames::default(), Duration::ZERO, None);
    let mut bytes = vec![0; 64 << 10];
    loop {
        if beat.is_none_or(|beat: Instant| beat.elapsed() >= HEARTBEAT) {
            beat = Some(Instant::now());
            link.send_heartbeat(&heartbeat());
        }
        match link.stream.read(&mut bytes, LOOK) {
            Ok(0) => return Cause::Closed,
            Ok(read) => {
                silence = Duration::ZERO;
                frames.push(&bytes[..read]);
                loop {
                    match frames.take() {
                        Ok(Some(message)) => take(message),
                        Ok(None) => break,
                        Err(error) => return Cause::Rubbish(error.to_string()),
                    }
                }
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                // Waits are counted: the clock also runs while nobody listens here.
                silence += LOOK;
                if silence >= DEAF_MAX {
                    return Cause::Silent(SILENCE_MAX.as_millis() as u64);
                }
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(_) => return Cause::Closed,
        }
    }
}

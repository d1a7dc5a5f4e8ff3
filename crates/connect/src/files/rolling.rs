//! Rolling: when a file is complete and the next one begins, and the clock that looks for it.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use millstream_contract::{Error, Result};

use crate::options::Options;
use millstream_contract::settings::parse_bytes;

/// When files are rolled; each limit that is given counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Rolling {
    /// A file is at least this long.
    pub(super) bytes: Option<u64>,
    /// A file has this many rows.
    pub(super) rows: Option<u64>,
    /// A file has been open for this long.
    pub(super) interval: Option<Duration>,
    /// The rows of a window are complete.
    pub(super) window: bool,
}

const SIZE: &str = "sink.rolling-policy.file-size";
const ROWS: &str = "sink.rolling-policy.rows";
const INTERVAL: &str = "sink.rolling-policy.rollover-interval";
const WINDOW: &str = "sink.rolling-policy.window";

/// The clock looks so many times within an interval, and waits no longer and no shorter than this.
const LOOKS: u32 = 10;
const WAIT_MAX: Duration = Duration::from_secs(1);
const WAIT_MIN: Duration = Duration::from_millis(10);

impl Rolling {
    /// From `sink.rolling-policy.*`; `None` if there is no such option.
    pub(super) fn from_options(options: &Options<'_>) -> Result<Option<Rolling>> {
        let positive = |text: &str| parse_bytes(text).filter(|bytes| *bytes > 0);
        let interval = options.duration_us(INTERVAL)?;
        if interval.is_some_and(|us| us <= 0) {
            let message = "it has to be longer than nothing".into();
            return Err(options.error(INTERVAL, message, "write for example '15 min'"));
        }
        let rolling = Rolling {
            bytes: options.parsed(SIZE, "a size such as '128 MB'", positive)?,
            rows: options.integer(ROWS, 1, u64::MAX)?,
            interval: interval.map(|us| Duration::from_micros(us.unsigned_abs())),
            window: options.flag(WINDOW)?,
        };
        Ok((rolling != Rolling::default()).then_some(rolling))
    }

    /// How many more rows a file takes that has `rows`.
    pub(super) fn room(&self, rows: u64) -> u64 {
        self.rows.map_or(u64::MAX, |max| max.saturating_sub(rows).max(1))
    }

    /// Whether a file of this length and so many rows is complete.
    pub(super) fn is_full(&self, bytes: u64, rows: u64) -> bool {
        self.bytes.is_some_and(|max| bytes >= max) || self.rows.is_some_and(|max| rows >= max)
    }
}

/// A thread that looks at the files from time to time, until this is dropped.
#[derive(Debug)]
pub(super) struct RollingClock {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl RollingClock {
    /// Calls `look` several times within each interval.
    pub(super) fn start(
        interval: Duration,
        look: impl Fn() + Send + 'static,
    ) -> Result<RollingClock> {
        let (stop, stopped) = channel();
        let wait = (interval / LOOKS).clamp(WAIT_MIN, WAIT_MAX);
        let run = move || {
            while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                look();
            }
        };
        let thread = thread::Builder::new().name("rolling".into()).spawn(run);
        let thread = thread.map_err(|error| Error::Io {
            place: INTERVAL.into(),
            message: format!("no thread for it: {error}"),
            help: "raise the limit of threads (ulimit -u)".into(),
        })?;
        Ok(RollingClock { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for RollingClock {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // The thread returns no value; a panic has been reported already.
            _ = thread.join();
        }
    }
}

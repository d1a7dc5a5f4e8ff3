//! Whether brokers take what is written, for those who wait and for the user.

use std::fmt;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use millstream_contract::Error;
use millstream_contract::sink::Tell;

use super::fault::{Fault, Outcome};

/// After so long without an answer the user is told, and a job that is to end does not wait.
const SOON: Duration = Duration::from_secs(4);

/// The absence of the brokers of a topic that is written.
#[derive(Default)]
pub(crate) struct Away {
    /// The topic and its brokers, for messages.
    place: String,
    tell: OnceLock<Tell>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Since when there are no answers, or none but faults that may pass.
    since: Option<Instant>,
    /// The last such fault.
    why: Option<String>,
    /// Since when the topic is not written, as the user was told.
    told: Option<Instant>,
    /// The job is to end. What the user is told then about the rows.
    ending: Option<&'static str>,
    has_given_up: bool,
}

impl State {
    fn is_away(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() >= SOON)
    }

    fn why(&self) -> &str {
        self.why.as_deref().unwrap_or("no broker answers")
    }
}

impl fmt::Debug for Away {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Away").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Away {
    pub(crate) fn new(topic: &str, servers: &str) -> Away {
        let place = format!("topic '{}' at {servers}", topic.escape_debug());
        Away { place, ..Away::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where news go from now on.
    pub(crate) fn listen(&self, tell: Tell) {
        // A second listener does not come.
        let _ = self.tell.set(tell);
    }

    fn tell(&self, line: String) {
        match self.tell.get() {
            Some(tell) => tell(line),
            None => tracing::warn!("{line}"),
        }
    }

    /// A broker is about to be asked; not in a job that is to end while brokers are away.
    pub(crate) fn question(&self) -> Outcome<()> {
        self.lock().since.get_or_insert_with(Instant::now);
        match self.has_given_up() {
            true => Err(Fault::retry("the job is to end".into())),
            false => Ok(()),
        }
    }

    /// An answer has come.
    pub(crate) fn note_answer<T>(&self, answer: &Outcome<T>) {
        let mut state = self.lock();
        match answer {
            Err(fault @ Fault::Retry(_)) => state.why = Some(fault.text()),
            _ => (state.since, state.why) = (None, None),
        }
        drop(state);
        self.look();
    }

    /// All that was to be written is in the topic.
    pub(crate) fn note_written(&self) {
        if let Some(since) = self.lock().told.take() {
            let seconds = since.elapsed().as_secs();
            self.tell(format!("{} is written again, after {seconds} s", self.place));
        }
    }

    /// Tells the user if there has been no answer for long. Who waits looks now and then.
    pub(crate) fn look(&self) {
        let mut state = self.lock();
        if state.is_away() && state.told.is_none() && state.ending.is_none() {
            state.told = state.since;
            let line = format!("{} cannot be written: {}; tries again", self.place, state.why());
            drop(state);
            self.tell(line);
        }
    }

    /// The job is to end. If the brokers are away, now or later, calls that wait for them end.
    /// `loss` is told about the rows then. Whether the brokers are away now.
    pub(crate) fn end(&self, loss: &'static str) -> bool {
        self.lock().ending.get_or_insert(loss);
        self.has_given_up()
    }

    /// Whether the job is to end, and the brokers are away.
    pub(crate) fn has_given_up(&self) -> bool {
        let mut state = self.lock();
        let Some(loss) = state.ending else { return false };
        if !state.has_given_up && state.is_away() {
            state.has_given_up = true;
            let line = format!("{} cannot be written, and {loss}: {}", self.place, state.why());
            drop(state);
            self.tell(line);
            return true;
        }
        state.has_given_up
    }

    /// The error of a fault that has ended a call.
    pub(crate) fn error(&self, fault: Fault, servers: &str) -> Error {
        match fault {
            Fault::Retry(_) if self.has_given_up() => Error::Interrupted,
            fault => fault.error(servers),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn later(away: &Away) {
        let mut state = away.lock();
        state.since = state.since.map(|since| since.checked_sub(2 * SOON).unwrap());
    }

    fn told() -> (Away, Arc<Mutex<Vec<String>>>) {
        let (away, lines): (_, Arc<Mutex<Vec<String>>>) =
            (Away::new("o", "here:1"), Arc::default());
        let own = lines.clone();
        away.listen(Arc::new(move |line| own.lock().unwrap().push(line)));
        (away, lines)
    }

    #[test]
    fn the_user_is_told_once_of_brokers_that_are_away() {
        let (away, lines) = told();
        away.question().unwrap();
        away.note_answer::<()>(&Err(Fault::retry("refused".into())));
        assert!(lines.lock().unwrap().is_empty());
        later(&away);
        away.look();
        away.note_answer::<()>(&Err(Fault::retry("refused".into())));
        assert_eq!(
            *lines.lock().unwrap(),
            ["topic 'o' at here:1 cannot be written: refused; tries again"]
        );
        away.note_answer(&Ok(()));
        away.note_written();
        away.note_written();
        assert_eq!(lines.lock().unwrap()[1..], ["topic 'o' at here:1 is written again, after 8 s"]);
    }

    #[test]
    fn nobody_waits_in_a_job_that_is_to_end() {
        let (away, lines) = told();
        let fault = || Fault::retry("refused".into());
        assert!(!away.end("no row is lost"));
        away.question().unwrap();
        assert!(!away.has_given_up());
        assert!(!matches!(away.error(fault(), "here:1"), Error::Interrupted));
        later(&away);
        assert!(away.has_given_up() && away.end("rows are lost"));
        assert!(away.question().is_err());
        assert!(matches!(away.error(fault(), "here:1"), Error::Interrupted));
        // What does not pass is told.
        assert!(!matches!(away.error(Fault::internal("x".into()), "here:1"), Error::Interrupted));
        let line = "topic 'o' at here:1 cannot be written, and no row is lost: no broker answers";
        assert_eq!(*lines.lock().unwrap(), [line]);
    }
}

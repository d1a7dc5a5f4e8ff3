//! News for the user while a job runs, at once: a followed file was truncated, for example.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Number of kept notices, the latest: a job may run for years.
const KEPT_MAX: usize = 1_000;

/// Called with each line.
pub(crate) type Listener = Box<dyn Fn(&str) + Send>;

/// Notices, a line each.
#[derive(Default)]
pub(crate) struct Notices(Mutex<NoticeLog>);

#[derive(Default)]
struct NoticeLog {
    lines: VecDeque<String>,
    listener: Option<Listener>,
}

impl Notices {
    fn lock(&self) -> MutexGuard<'_, NoticeLog> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells one.
    pub(crate) fn tell(&self, line: String) {
        let mut log = self.lock();
        if let Some(listener) = &log.listener {
            listener(&line);
        }
        if log.lines.len() == KEPT_MAX {
            log.lines.pop_front();
        }
        log.lines.push_back(line);
    }

    /// Calls `listener` with all that have been told, and with each that will be.
    pub(crate) fn listen(&self, listener: Listener) {
        let mut log = self.lock();
        log.lines.iter().for_each(|line| listener(line));
        log.listener = Some(listener);
    }

    /// The last ones.
    pub(crate) fn last(&self) -> Vec<String> {
        self.lock().lines.iter().cloned().collect()
    }
}

impl fmt::Debug for Notices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.last()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn who_listens_hears_all_and_the_last_are_kept() {
        let notices = Notices::default();
        notices.tell("before".into());
        let heard: Arc<Mutex<Vec<String>>> = Arc::default();
        let hears = heard.clone();
        notices.listen(Box::new(move |line| hears.lock().unwrap().push(line.into())));
        (0..KEPT_MAX).for_each(|number| notices.tell(number.to_string()));
        let heard = heard.lock().unwrap();
        assert_eq!((heard.len(), heard[0].as_str()), (KEPT_MAX + 1, "before"));
        assert_eq!(notices.last(), heard[1..]);
    }
}

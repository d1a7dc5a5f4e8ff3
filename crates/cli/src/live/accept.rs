//! Connections to a running script: each has a thread of its own, up to a number of them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Serves incoming connections, until `accept` returns none. `name` is the name of their threads. A
/// connection beyond `most` at a time is served if `make_room` returns it, after ending another.
pub(super) fn accept_all<S: Send + 'static>(
    (name, most): (&str, usize),
    mut accept: impl FnMut() -> io::Result<Option<S>>,
    make_room: impl Fn(S) -> Option<S>,
    serve: impl Fn(S) + Clone + Send + 'static,
) {
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let stream = match accept() {
            Ok(Some(stream)) => stream,
            Ok(None) => return,
            Err(_) => {
                // No descriptor is left, perhaps, which may change.
                thread::sleep(Duration::from_millis(50));
                continue;
            }
        };
        let stream = match open.fetch_add(1, Ordering::SeqCst) >= most {
            true => make_room(stream),
            false => Some(stream),
        };
        let Some(stream) = stream else {
            open.fetch_sub(1, Ordering::SeqCst);
            continue;
        };
        let (serve, counted) = (serve.clone(), open.clone());
        let thread = thread::Builder::new().name(name.into()).spawn(move || {
            serve(stream);
            counted.fetch_sub(1, Ordering::SeqCst);
        });
        if thread.is_err() {
            open.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

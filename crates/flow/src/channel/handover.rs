//! The rule by which a side decides to sleep, and its peer to wake it (see `side`). It stands apart
//! from any fabric, so that a model checker can run it.

/// The words of a side's block that the hand-over is about.
pub(crate) trait Words {
    /// Stores how much this side has sent, where the peer can read it; in no order but the fence's.
    fn announce(&self, count: u64);
    /// Orders what was stored before with what is loaded after (sequentially consistent).
    fn fence(&self);
    /// Whether the peer has raised its flag.
    fn peer_parked(&self) -> bool;
}

/// Announces `count`, and only then looks whether the peer sleeps. What is announced is sent
/// afterwards, with a wake-up if this returns true: a peer that raises its flag later reads the
/// announcement and stays awake for it.
#[inline]
pub(crate) fn announce(words: &impl Words, count: u64) -> bool {
    words.announce(count);
    words.fence();
    words.peer_parked()
}

/// Whether a side that has raised its flag, and read the announcement behind it, may sleep when it
/// has seen `seen`: all that was announced is here.
#[inline]
pub(crate) fn may_sleep(announced: u64, seen: u64) -> bool {
    announced <= seen
}

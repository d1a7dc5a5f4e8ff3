//! The rule by which a side decides to sleep, and its peer to wake it. The rule uses no
//! fabric, so a model checker can run it.

/// The words of a side's block that the hand-over is about.
pub(crate) trait Words {
    /// Stores how much this side has sent, where the peer can read it; in no order but the fence's.
    fn announce(&self, count: u64);
    /// Orders what was stored before with what is loaded after (sequentially consistent).
    fn fence(&self);
    /// The peer's flag: the number of its sleeps so far.
    fn peer_flag(&self) -> u64;
}

/// Announces `count`, and only then looks at the peer's flag. What is announced is sent afterwards,
/// with a wake-up if the flag is one that has had none: a peer that raises its flag later reads the
/// announcement and stays awake for it.
#[inline]
pub(crate) fn announce(words: &impl Words, count: u64) -> u64 {
    words.announce(count);
    words.fence();
    words.peer_flag()
}

/// Whether a side that has raised its flag, and read the announcement behind it, may sleep when it
/// has seen `seen`: all that was announced is here.
#[inline]
pub(crate) fn may_sleep(announced: u64, seen: u64) -> bool {
    announced <= seen
}

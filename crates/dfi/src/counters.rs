//! Counters of a source or a target.

/// Counts since the endpoint was connected. Sources count posted work, targets count consumed
/// segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Segments sent, each counted once for every target it goes to, or consumed. Segments that
    /// end a pair are not counted.
    pub segments: u64,
    /// Of these, segments sent by [`Source::flush`](crate::Source::flush) before they were full.
    pub partial: u64,
    /// Bytes of payload in these segments.
    pub bytes: u64,
    /// WRITE requests posted for segments. A partial segment may take two. At a target: requests of
    /// all kinds, which go to sleep, probe silent sources and confirm ends. Of a multicast flow,
    /// also the back-flow.
    pub writes: u64,
    /// Of these, signalled requests.
    pub signalled_writes: u64,
    /// READ requests posted for footers or counts. At a target: requests that go to sleep.
    pub reads: u64,
    /// Of these, repetitions, because the segment was not free or no credit was left.
    pub repeated_reads: u64,
    /// Writes that woke a sleeping target.
    pub wakes: u64,
    /// At a source: calls that found no segment to fill. At a target: rounds over all rings that
    /// found no segment.
    pub stalls: u64,
    /// Of a multicast flow, at a source: datagrams that brought a segment for the first time.
    pub datagrams: u64,
    /// Segments sent again because a target has asked.
    pub resent: u64,
    /// Datagrams without a segment, which say how many segments there are.
    pub marks: u64,
    /// Of an ordered flow, at a source: numbers drawn at the sequencer.
    pub numbers: u64,
    /// At a target of a multicast flow: datagrams that were dropped because their segment had
    /// arrived before, or had been given up.
    pub repeated: u64,
    /// Requests for missing segments.
    pub requests: u64,
    /// Numbers of an ordered flow that were reported as gaps.
    pub gaps: u64,
    /// Bytes of memory registered for rings.
    pub ring_bytes: u64,
}

//! The options of a flow (thesis, sections 7.4.2 and 7.5).

use std::fmt;
use std::sync::Arc;

/// Segments in batches of tuples, for throughput.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bandwidth {
    /// Bytes of payload of a segment, a multiple of 16.
    pub segment: usize,
    /// Segments of a ring at the target, 1 to 4,096.
    pub segments: usize,
    /// Segments of a ring at the source, 1 to 4,096. The thesis' figures for memory hold with as
    /// many as at the target.
    pub source_segments: usize,
}

impl Default for Bandwidth {
    /// 32 segments of 8,192 bytes (thesis, section 7.6.1.4), and 4 at the source (ours).
    fn default() -> Self {
        Bandwidth { segment: 8192, segments: 32, source_segments: 4 }
    }
}

impl Bandwidth {
    /// 32 segments of 4,064 bytes, the most that a datagram of 4,096 bytes holds. A source of a
    /// multicast flow keeps as many segments as its targets.
    pub const DATAGRAMS: Bandwidth = Bandwidth { segment: 4064, segments: 32, source_segments: 32 };
}

/// As [`Bandwidth`], with several segments under way: for fabrics with long round trips. Credit is
/// a count at the target, as of [`Latency`] (ours).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pipelined(pub Bandwidth);

/// A segment for each tuple, for latency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Latency {
    /// Segments of a ring, at both ends, 1 to 4,096.
    pub segments: usize,
}

impl Default for Latency {
    /// 128 segments (ours).
    fn default() -> Self {
        Latency { segments: 128 }
    }
}

/// The goal that a flow is optimised for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Optimise {
    /// Throughput.
    Bandwidth(Bandwidth),
    /// Throughput over long round trips.
    Pipelined(Pipelined),
    /// Latency.
    Latency(Latency),
}

impl From<Bandwidth> for Optimise {
    fn from(bandwidth: Bandwidth) -> Optimise {
        Optimise::Bandwidth(bandwidth)
    }
}

impl From<Pipelined> for Optimise {
    fn from(pipelined: Pipelined) -> Optimise {
        Optimise::Pipelined(pipelined)
    }
}

impl From<Latency> for Optimise {
    fn from(latency: Latency) -> Optimise {
        Optimise::Latency(latency)
    }
}

/// A routing function: of a tuple's bytes and the number of targets, the target's index.
pub type RouteFunction = Arc<dyn Fn(&[u8], usize) -> usize + Send + Sync>;

/// Which target a tuple of a shuffle flow goes to.
#[derive(Clone)]
pub enum Route<'a> {
    /// By the hash of this attribute; equal values meet at one target.
    Key(&'a str),
    /// By a function, say a range or a radix. A function does not travel: sources that read the
    /// declaration over TCP give it in [`SourceSetup::route_by`](crate::SourceSetup::route_by).
    By(RouteFunction),
    /// Each push names its target ([`Source::push_to`](crate::Source::push_to)).
    Explicit,
}

impl Route<'_> {
    /// By a function of a tuple's bytes and the number of targets.
    pub fn by(function: impl Fn(&[u8], usize) -> usize + Send + Sync + 'static) -> Route<'static> {
        Route::By(Arc::new(function))
    }
}

impl fmt::Debug for Route<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Route::Key(name) => write!(f, "Key({name:?})"),
            Route::By(_) => f.write_str("By(…)"),
            Route::Explicit => f.write_str("Explicit"),
        }
    }
}

/// How a target detects that a segment is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Detection {
    /// By its footer, which lands last on a fabric with ordered placement.
    #[default]
    Footer,
    /// By a checksum in its footer, on any fabric.
    Checksum,
}

/// Treatment of a segment that the target of an ordered multicast flow has not got after the
/// time-out (thesis, section 7.5.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Gaps {
    /// The source sends it again.
    #[default]
    Resend,
    /// The target is told the number ([`Consumed::Gap`](crate::Consumed)), and nothing is sent
    /// again. The segment may have arrived at other targets.
    Notify,
}

/// Treatment of a lost source or target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnLoss {
    /// The flow fails at all ends.
    #[default]
    Fail,
    /// A lost target leaves a replicate flow; a lost source ends after its last whole segment. A
    /// lost target of a shuffle or combine flow still fails it, for its tuples have no other.
    Drop,
}

//! What tests of the sink share.

use millstream_connect::Options;

use super::options::SinkOptions;
use crate::tests::table;

/// The options of a sink that writes exactly once, and has no broker.
pub(super) fn exactly_once() -> SinkOptions {
    let more = [("sink.delivery-guarantee", "exactly-once"), ("sink.transactional-id-prefix", "p")];
    let table = table(&[], &more);
    SinkOptions::from_options(&table, &Options::new(&table)).unwrap()
}

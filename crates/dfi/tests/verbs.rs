//! Every kind of flow and goal over `verbs`. `tests/rdma` runs it in a virtual machine, over the
//! kernel's Soft-RoCE driver.

use crate::common::suite::suite;
use millstream_fabric::verbs::{Options, Verbs};

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn verbs_every_kind_and_goal() {
    // The kernel's driver copies packets in order; it only does not promise it.
    let options = Options { ordered_placement: Some(true), ..Options::default() };
    let device = Verbs::open(&options).unwrap();
    suite(&[device], 12, |_| {});
}

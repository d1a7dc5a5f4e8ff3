//! Runs the conformance suite over `verbs`. `tests/rdma` runs this test in a virtual machine, over
//! the kernel's Soft-RoCE driver.

use std::time::Duration;

mod suite;

use self::suite::{Bed, Skip, run};
use millstream_fabric::setup::Token;
use millstream_fabric::survey::survey;
use millstream_fabric::verbs::{Options, Verbs, devices};
use millstream_fabric::{Error, Fabric, Provider};

const PATIENCE: Duration = Duration::from_secs(60);

/// What this driver does otherwise; see docs/rdma.md.
const SOFT_ROCE: &[Skip] = &[
    Skip {
        check: "a full send queue refuses, and is free after polling",
        reason: "Soft-RoCE frees the entries of unsignalled work by itself, so no queue gets full",
    },
    Skip {
        check: "a send longer than the receive fails",
        reason: "it fails, but Soft-RoCE gives other reasons than the standard on both sides",
    },
];

fn check(a: &Verbs, b: &Verbs) {
    let (idle, stranger) = (&std::thread::yield_now, &open_for(Token::new([6; 32])));
    let report = run(&Bed { a, b, stranger, idle, patience: PATIENCE }, SOFT_ROCE);
    println!("{report}");
    assert!(report.is_good(), "{report}");
}

fn open() -> Verbs {
    open_for(Token::new([5; 32]))
}

/// The device, for the job with this token.
fn open_for(token: Token) -> Verbs {
    let device = Verbs::open(&Options { token: Some(token), ..Options::default() }).unwrap();
    println!("{device}: {:?}", device.limits());
    device
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn one_device() {
    let device = open();
    check(&device, &device);
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn a_device_opened_twice() {
    check(&open(), &open());
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn what_is_asked_for_is_opened_or_the_reason_said() {
    assert_eq!(devices().unwrap(), ["rxe0"]);
    let chosen = Verbs::open(&Options::default()).unwrap();
    assert_eq!(chosen.provider(), Provider::Verbs);
    let text = chosen.to_string();
    assert!(text.starts_with("rxe0 port 1, RoCE v2, GID ::ffff:10.77.0.1 (index"), "{text}");

    let first = Options { device: Some("rxe0".into()), gid_index: Some(0), ..Options::default() };
    let text = Verbs::open(&first).unwrap().to_string();
    assert!(text.contains("GID fe80:"), "the table begins with the link's own address: {text}");
    let ordered = Options { ordered_placement: Some(true), ..Options::default() };
    assert!(Verbs::open(&ordered).unwrap().limits().ordered_placement);

    let no_device = Options { device: Some("mlx5_7".into()), ..Options::default() };
    let no_port = Options { port: Some(2), ..Options::default() };
    let no_gid = Options { gid_index: Some(200), ..Options::default() };
    for (options, reason) in [
        (no_device, "RDMA: not available: no device \"mlx5_7\"; there is rxe0"),
        (no_port, "RDMA: not available: rxe0 has no port 2; there are 1 to 1"),
        (no_gid, "RDMA: not available: port 1 of rxe0 has no GID at index 200"),
    ] {
        let error = Verbs::open(&options).unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        assert!(error.to_string().starts_with(reason), "{error}");
    }
}

/// What `millstream fabric` says of RDMA.
fn listed() -> String {
    let found = survey().into_iter().rfind(|found| found.provider == Provider::Verbs);
    found.expect("verbs are always listed").to_string()
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn the_device_is_listed() {
    let text = listed();
    let start = "verbs: available (rxe0 port 1, RoCE v2, GID ::ffff:10.77.0.1";
    assert!(text.starts_with(start), "{text}");
}

#[test]
#[ignore = "needs the driver and no device: make test-rdma"]
fn no_device_is_listed() {
    let text = listed();
    assert!(text.starts_with("verbs: RDMA: not available: no device"), "{text}");
}

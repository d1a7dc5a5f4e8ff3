//! Tests of the errors on a machine without RDMA. `tests/rdma` runs them in a virtual machine, each
//! at a moment at which the machine is in the state that the test is about.

use millstream_verbs::{Context, Unavailable, devices};

#[test]
#[ignore = "needs the driver without a device: make test-rdma"]
fn driver_without_device() {
    assert_eq!(devices(), Err(Unavailable::NoDevice));
    let text = Unavailable::NoDevice.to_string();
    assert!(text.starts_with("RDMA: not available: no device"), "{text}");
    assert_eq!(Context::open("rxe0").unwrap_err().to_string(), text);
}

#[test]
#[ignore = "needs a device that this user may not open: make test-rdma"]
fn device_without_permission() {
    let name = devices().unwrap().remove(0).name;
    let unavailable = Context::open(&name).unwrap_err();
    assert!(matches!(unavailable, Unavailable::Permission { .. }), "{unavailable:?}");
    let text = unavailable.to_string();
    assert!(text.contains("no permission to open device rxe0"), "{text}");
    assert!(text.contains("/dev/infiniband/uverbs0"), "{text}");
}

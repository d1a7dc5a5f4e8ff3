//! A test that a process without a free file descriptor accepts no connection, and does not spin
//! over it. It is alone in its file because it changes the whole process.

use std::fs::File;
use std::mem::zeroed;
use std::net::Ipv4Addr;
use std::time::Duration;

use millstream_fabric::setup::Token;
use millstream_fabric::shm::ShmDevice;
use millstream_fabric::tcp::TcpDevice;
use millstream_fabric::{Fabric, QueuePair, QueueSizes, State, Timing};

/// Processor time of this process so far.
fn processor_time() -> Duration {
    // SAFETY: zeros are a value of this plain structure.
    let mut usage: libc::rusage = unsafe { zeroed() };
    // SAFETY: the structure is writable.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    let time = |t: libc::timeval| {
        Duration::from_secs(t.tv_sec as u64) + Duration::from_micros(t.tv_usec as u64)
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// Takes all descriptors that the process may have.
fn all_descriptors() -> Vec<File> {
    // SAFETY: zeros are a value of this plain structure.
    let mut limit: libc::rlimit = unsafe { zeroed() };
    // SAFETY: the structure is readable and writable.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max.min(256);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
    }
    let files: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    assert!(!files.is_empty() && files.len() < 256);
    files
}

/// Connects a socket that exists; the other side need not answer.
fn call<T>(socket: i32, address: &T, bytes: usize) {
    // SAFETY: the address is alive and has this length.
    let result =
        unsafe { libc::connect(socket, (&raw const *address).cast(), bytes as libc::socklen_t) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

fn connects<F: Fabric>(device: &F) {
    let queue = device.completion_queue(8, None).unwrap();
    let sizes = QueueSizes { send: 1, receive: 1 };
    let pair = || device.queue_pair(&queue, &queue, sizes, Timing::default()).unwrap();
    let (mut a, mut b) = (pair(), pair());
    a.connect(&b.endpoint()).unwrap();
    b.connect(&a.endpoint()).unwrap();
}

/// That too few descriptors, up to `few`, are named as the reason, and are no harm to what there
/// was.
fn names_the_reason<F: Fabric>(device: &F, few: usize) {
    let events = device.events().unwrap();
    let queue = device.completion_queue(8, Some(&events)).unwrap();
    let sizes = QueueSizes { send: 1, receive: 1 };
    let pair = || device.queue_pair(&queue, &queue, sizes, Timing::default()).unwrap();
    let (mut a, mut b, mut c, d) = (pair(), pair(), pair(), pair());
    a.connect(&b.endpoint()).unwrap();
    b.connect(&a.endpoint()).unwrap();
    let mut files = all_descriptors();
    for _ in 0..=few {
        let error = c.connect(&d.endpoint()).unwrap_err().to_string();
        assert!(error.contains("ulimit -n"), "{error}");
        files.pop();
    }
    drop(files);
    c.connect(&d.endpoint()).unwrap();
    assert_eq!(a.state(), State::Connected);
}

#[test]
fn without_descriptors_nobody_spins() {
    let token = Token::new([3; 32]);
    let shm = ShmDevice::open(token).unwrap();
    let tcp = TcpDevice::open(token, "127.0.0.1:0".parse().unwrap()).unwrap();

    let mut unix: libc::sockaddr_un = {
        // SAFETY: zeros are a valid address.
        unsafe { zeroed() }
    };
    unix.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let name = {
        let queue = shm.completion_queue(1, None).unwrap();
        let sizes = QueueSizes { send: 1, receive: 1 };
        let pair = shm.queue_pair(&queue, &queue, sizes, Timing::default()).unwrap();
        let id = u64::from_le_bytes(std::array::from_fn(|i| pair.endpoint().detail[i]));
        format!("millstream-{id:016x}")
    };
    for (to, from) in unix.sun_path[1..].iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let internet = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: tcp.address().port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(Ipv4Addr::LOCALHOST).to_be() },
        sin_zero: [0; 8],
    };
    // SAFETY: plain calls.
    let (local, remote) = unsafe {
        let local = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0);
        (local, libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0))
    };

    let files = all_descriptors();
    call(local, &unix, size_of::<libc::sa_family_t>() + 1 + name.len());
    call(remote, &internet, size_of::<libc::sockaddr_in>());
    let (before, time) = (processor_time(), Duration::from_secs(1));
    std::thread::sleep(time);
    let used = processor_time() - before;
    // A thread that spins takes all of it, unless others keep the machine busy.
    assert!(used < time / 5, "{used:?}");

    drop(files);
    connects(&shm);
    connects(&tcp);
    // Two are needed to connect over shm, and one over tcp.
    names_the_reason(&shm, 1);
    names_the_reason(&tcp, 0);
}

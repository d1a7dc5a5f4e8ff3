//! What the tests share: a device, and pairs of connected queue pairs on it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use millstream_verbs::*;

/// How long anything may take in an emulated machine. Nothing is expected to.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const REGION_BYTES: usize = 256 << 10;

/// The first device, a domain on it and the GID to use.
pub(crate) struct Rig {
    pub(crate) context: Arc<Context>,
    pub(crate) domain: Arc<ProtectionDomain>,
    pub(crate) gid: GidEntry,
    pub(crate) port: Port,
}

impl Rig {
    pub(crate) fn new() -> Rig {
        let name = devices().expect("a device").remove(0).name;
        let context = Context::open(&name).expect("to open it");
        let domain = ProtectionDomain::new(&context).unwrap();
        let port = context.port(1).unwrap();
        let gids = context.gids().unwrap();
        let gid = *gids.iter().find(|entry| entry.kind == GidKind::RoceV2).expect("a RoCE v2 GID");
        Rig { context, domain, gid, port }
    }

    pub(crate) fn queue(&self) -> Arc<CompletionQueue> {
        CompletionQueue::new(&self.context, 256, None, 0).unwrap()
    }

    pub(crate) fn region(&self, access: Access) -> MemoryRegion {
        let memory = Memory::new(REGION_BYTES, Pages::Ordinary).unwrap();
        MemoryRegion::new(&self.domain, memory, access).unwrap()
    }

    /// The way from the port to itself.
    pub(crate) fn path(&self) -> Path {
        Path {
            port: 1,
            gid_index: self.gid.index,
            gid: Some(self.gid.gid),
            lid: self.port.lid,
            service_level: 0,
        }
    }

    /// A queue pair in the reset state, with its own completion queue.
    pub(crate) fn pair(&self, transport: Transport, queue: &Arc<CompletionQueue>) -> QueuePair {
        let options = QueuePairOptions {
            transport,
            send_queue: queue,
            receive_queue: queue,
            capacity: CAPACITY,
            all_signaled: false,
        };
        QueuePair::new(&self.domain, &options).unwrap()
    }

    /// An end that is not connected.
    pub(crate) fn end(&self) -> End {
        let queue = self.queue();
        let pair = self.pair(Transport::Reliable, &queue);
        End { queue, pair, region: self.region(Access::ALL) }
    }

    /// Two ends, connected to each other.
    pub(crate) fn ends(&self) -> (End, End) {
        let (a, b) = (self.end(), self.end());
        self.connect(&a.pair, b.pair.number(), RETRIES);
        self.connect(&b.pair, a.pair.number(), RETRIES);
        (a, b)
    }

    pub(crate) fn connect(&self, pair: &QueuePair, to: u32, retries: Retries) {
        pair.initialize_reliable(1, Access::ALL).unwrap();
        pair.connect(&Peer {
            path: self.path(),
            queue_pair: to,
            first_packet: retries.first_packet,
            mtu: self.port.mtu,
            reads_accepted: 4,
            receiver_not_ready_timer: 12,
        })
        .unwrap();
        pair.start_reliable(&retries).unwrap();
    }
}

pub(crate) const CAPACITY: Capacity =
    Capacity { sends: 32, receives: 32, send_pieces: 4, receive_pieces: 4, inline_bytes: 128 };

pub(crate) const RETRIES: Retries =
    Retries { first_packet: 77, reads_started: 4, timeout: 18, count: 7, receiver_not_ready: 7 };

/// A queue pair with its completion queue and memory.
pub(crate) struct End {
    pub(crate) queue: Arc<CompletionQueue>,
    pub(crate) pair: QueuePair,
    pub(crate) region: MemoryRegion,
}

impl End {
    /// Posts one request, signaled, and waits for it.
    pub(crate) fn run(&self, request: SendRequest<'_>) -> Completion {
        self.pair.post_send(&mut [request.signaled()]).unwrap();
        next(&self.queue)
    }

    /// Posts a receive into that part of its memory.
    pub(crate) fn receive(&self, id: u64, offset: usize, bytes: usize) {
        let pieces = [self.region.piece(offset, bytes).unwrap()];
        self.pair.post_receive(&mut [ReceiveRequest::new(id, &pieces)]).unwrap();
    }
}

/// Waits for the next completion of the queue.
pub(crate) fn next(queue: &CompletionQueue) -> Completion {
    let end = Instant::now() + PATIENCE;
    let mut completion = [Completion::default()];
    while queue.poll(&mut completion).unwrap() == 0 {
        assert!(Instant::now() < end, "no completion came");
        std::thread::yield_now();
    }
    completion[0]
}

/// Whether the queue is empty, now.
pub(crate) fn is_empty(queue: &CompletionQueue) -> bool {
    queue.poll(&mut [Completion::default()]).unwrap() == 0
}

pub(crate) fn assert_success(completion: &Completion, id: u64, operation: Operation) {
    assert!(completion.status().is_success(), "{completion:?}");
    assert_eq!((completion.id(), completion.operation()), (id, operation), "{completion:?}");
}

/// A text that is different at every place.
pub(crate) fn pattern(bytes: usize, seed: u8) -> Vec<u8> {
    let byte = |i: usize| (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ seed as u64) >> 32;
    (0..bytes).map(|i| byte(i) as u8).collect()
}

/// Reads registered memory.
pub(crate) fn get(region: &MemoryRegion, offset: usize, bytes: usize) -> Vec<u8> {
    assert!(offset + bytes <= region.bytes());
    // SAFETY: inside of the region, which is mapped; volatile because the device may write it.
    (offset..offset + bytes)
        .map(|i| unsafe { region.address().as_ptr().add(i).read_volatile() })
        .collect()
}

/// Writes registered memory.
pub(crate) fn put(region: &MemoryRegion, offset: usize, bytes: &[u8]) {
    assert!(offset + bytes.len() <= region.bytes());
    for (i, byte) in bytes.iter().enumerate() {
        // SAFETY: as above.
        unsafe { region.address().as_ptr().add(offset + i).write_volatile(*byte) }
    }
}

pub(crate) fn get_word(region: &MemoryRegion, offset: usize) -> u64 {
    u64::from_ne_bytes(get(region, offset, 8).try_into().unwrap())
}

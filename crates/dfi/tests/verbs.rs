//! Flows over `verbs`. `tests/rdma` runs these tests in virtual machines, over the kernel's
//! Soft-RoCE driver.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use crate::common::order::disorder;
use crate::common::suite::suite;
use crate::common::{Consumption, Row};
use crate::multicast;
use millstream_dfi::{
    Bandwidth, Consumed, Error, Flow, Registry, RegistryClient, RegistryService, Result, Source,
    SourceSetup, Target, TargetSetup, Thread,
};
use millstream_fabric::setup::Token;
use millstream_fabric::verbs::{Options, Verbs};

/// How long anything may take in emulated machines.
const PATIENCE: Duration = Duration::from_secs(120);
const TOKEN: [u8; 32] = [8; 32];
/// The registry of the first machine.
const PORT: u16 = 7531;
/// Tuples of each source.
const TUPLES: u64 = 400;

/// The number of this machine, 1 or 2, and the other's address.
const HOST: &str = "MILLSTREAM_RDMA_HOST";
const PEER: &str = "MILLSTREAM_RDMA_PEER";

fn open() -> Verbs {
    // The kernel's driver copies packets in order; it only does not promise it.
    let (ordered_placement, token) = (Some(true), Some(Token::new(TOKEN)));
    Verbs::open(&Options { ordered_placement, token, ..Options::default() }).unwrap()
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn every_kind_and_goal() {
    suite(&[open()], 12, |_| {});
}

/// The kernel passes a group's packets back to its own host.
#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn multicast_every_order_and_goal() {
    multicast::suite(&[open()], 12, |_| {});
}

/// The ends of this machine: a source and a target.
fn join(
    device: &Verbs,
    registry: &impl Registry,
    (flow, host): (&str, u32),
) -> Result<(Source<Verbs>, Target<Verbs>)> {
    let (from, to) = (Thread::new(host, 0), Thread::new(host, 100));
    let source = SourceSetup::join(device, registry, flow, from, PATIENCE)?;
    let target = TargetSetup::join(device, registry, flow, to, PATIENCE)?;
    Ok((source.connect(registry, PATIENCE)?, target.connect(registry, PATIENCE)?))
}

/// Pushes all tuples of this machine and consumes those of both.
fn exchange(
    (mut source, mut target): (Source<Verbs>, Target<Verbs>),
    host: u32,
) -> Vec<Consumption> {
    let (mut order, mut pushed, mut is_closed, mut has_ended) = (Vec::new(), 0, false, false);
    while !is_closed || !has_ended {
        if pushed < TUPLES {
            let row = Row::new(host.into(), pushed);
            pushed += u64::from(source.try_push(&row).unwrap());
        } else if !is_closed {
            is_closed = source.try_close().unwrap();
        }
        match target.try_consume().unwrap() {
            Consumed::Batch(batch) => {
                let rows = batch.rows::<Row>().unwrap();
                assert!(rows.iter().all(Row::is_whole));
                order.extend(rows.iter().map(|row| Consumption::Tuple(row.source, row.number)));
            }
            Consumed::End => has_ended = true,
            Consumed::Empty => {}
            Consumed::Gap(number) => panic!("gap {number}"),
        }
    }
    println!("{:?}\n{:?}", source.counters(), target.counters());
    order
}

/// Each source's tuples arrive once and in order.
fn check_pairs(order: &[Consumption]) {
    for host in [1, 2] {
        let own =
            order.iter().filter(|one| matches!(one, Consumption::Tuple(from, _) if *from == host));
        assert!(own.copied().eq((0..TUPLES).map(|number| Consumption::Tuple(host, number))));
    }
    assert_eq!(order.len() as u64, 2 * TUPLES);
}

/// The registry, once the first machine serves it.
fn call(client: &RegistryClient, flow: &str) {
    let start = Instant::now();
    while let Err(error) = client.look_up(flow, PATIENCE) {
        let waits = matches!(error, Error::Registry { .. }) && start.elapsed() < PATIENCE;
        assert!(waits, "{error}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Replicate flows from both machines to both: by multicast, by multicast in one order, and over
/// rings in one order. The second machine tells the first its order through a flow.
#[test]
#[ignore = "needs two machines with RDMA devices: make test-rdma-two"]
fn flows_between_machines() {
    let host: u32 = std::env::var(HOST).unwrap().parse().unwrap();
    let peer: IpAddr = std::env::var(PEER).unwrap().parse().unwrap();
    let (device, token) = (open(), Token::new(TOKEN));
    // Round trips take tens of milliseconds.
    let (silence, time_out) = (Duration::from_secs(60), Duration::from_millis(300));
    let goal = Bandwidth { segment: 256, segments: 8, source_segments: 8 };
    let replicate = |name| Flow::replicate(name).optimise(goal).time_out(time_out);
    let flows = [
        ("pairs", replicate("pairs").multicast()),
        ("order", replicate("order").multicast().ordered()),
        ("rings", replicate("rings").ordered()),
    ];
    let both = |id| [Thread::new(1, id), Thread::new(2, id)];
    let service = (host == 1).then(|| {
        let service = RegistryService::open(token, (Ipv4Addr::UNSPECIFIED, PORT).into()).unwrap();
        for (_, flow) in flows.clone() {
            let flow = flow.schema(Row::schema()).silence(silence);
            flow.sources(both(0)).targets(both(100)).publish(service.local()).unwrap();
        }
        let report = Flow::shuffle("report").schema(Row::schema()).silence(silence);
        report
            .sources([Thread::new(2, 7)])
            .targets([Thread::new(1, 7)])
            .publish(service.local())
            .unwrap();
        service
    });
    let address = if host == 1 { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { peer };
    let client = RegistryClient::new(token, (address, PORT).into());
    call(&client, "report");
    let orders = flows.map(|(name, _)| {
        let order = exchange(join(&device, &client, (name, host)).unwrap(), host);
        check_pairs(&order);
        println!("{name}: {} tuples", order.len());
        order
    });
    let thread = Thread::new(host, 7);
    if host == 2 {
        let source = SourceSetup::join(&device, &client, "report", thread, PATIENCE).unwrap();
        let mut source = source.connect(&client, PATIENCE).unwrap();
        for one in orders.iter().flatten() {
            let Consumption::Tuple(from, number) = one else { panic!("{one:?}") };
            source.push(&Row::new(*from, *number)).unwrap();
        }
        source.close().unwrap();
        return;
    }
    let target = TargetSetup::join(&device, &client, "report", thread, PATIENCE).unwrap();
    let mut target = target.connect(&client, PATIENCE).unwrap();
    let mut told = Vec::new();
    while let Some(batch) = target.consume().unwrap() {
        let rows = batch.rows::<Row>().unwrap().iter();
        told.extend(rows.map(|row| Consumption::Tuple(row.source, row.number)));
    }
    let theirs: Vec<_> = told.chunks(2 * TUPLES as usize).map(<[_]>::to_vec).collect();
    assert_eq!(theirs.len(), orders.len());
    for (ours, theirs) in orders.into_iter().zip(theirs).skip(1) {
        assert_eq!(disorder(&[ours, theirs]), None);
    }
    drop(service);
}

//! The registry, in a process and over TCP.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use crate::common::{PATIENCE, Plan, Row, check, join, run, shm, threads};
use millstream_dfi::{
    Error, Flow, LocalRegistry, Registry, RegistryClient, RegistryService, Role, Route,
    SourceSetup, TargetSetup, Thread,
};
use millstream_fabric::setup::{Token, head};

const NOW: Duration = Duration::ZERO;
const SOON: Duration = Duration::from_millis(100);

fn flow() -> Flow {
    let (sources, targets) = (threads(2, 1, 0), threads(1, 1, 100));
    Flow::shuffle("f").sources(sources).targets(targets).schema(Row::schema())
}

fn service() -> (RegistryService, RegistryClient) {
    let token = Token::new([5; 32]);
    let service = RegistryService::open(token, (Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let client = RegistryClient::new(token, service.address());
    (service, client)
}

/// What both registries promise.
fn keeps_its_promises(registry: &(impl Registry + Sync)) {
    let device = shm(1).remove(0);
    // A flow that is not there, in time and never.
    let error = registry.look_up("f", SOON).unwrap_err();
    assert!(matches!(error, Error::NoFlow { patience: SOON, .. }), "{error}");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| registry.look_up("f", PATIENCE));
        std::thread::sleep(SOON);
        flow().publish(registry).unwrap();
        let found = waiting.join().unwrap().unwrap();
        assert_eq!((found.name(), found.schema()), ("f", &Row::schema()));
        assert_eq!(found.threads(Role::Source), threads(2, 1, 0));
    });
    // A name that is taken.
    let error = flow().publish(registry).unwrap_err();
    assert!(matches!(&error, Error::NameTaken { flow } if flow == "f"), "{error}");
    // A thread that the declaration does not name, and one that joins twice.
    let stranger = SourceSetup::join(&device, registry, "f", Thread::new(0, 100), NOW);
    assert!(matches!(stranger.err(), Some(Error::Unexpected { role: Role::Source, .. })));
    let first = SourceSetup::join(&device, registry, "f", Thread::new(0, 0), NOW).unwrap();
    let again = SourceSetup::join(&device, registry, "f", Thread::new(0, 0), NOW);
    assert!(matches!(again.err(), Some(Error::Registry { .. })));
    // The barrier names who is missing.
    let target = TargetSetup::join(&device, registry, "f", Thread::new(0, 100), NOW).unwrap();
    let Err(error) = first.connect(registry, SOON) else { panic!("one source is missing") };
    let Error::NotJoined { missing: 1, first, .. } = &error else { panic!("{error}") };
    assert_eq!((first.role, first.index, first.thread), (Role::Source, 1, Thread::new(0, 1)));
    drop(target);
    // A withdrawn name is free.
    registry.withdraw("f").unwrap();
    assert!(registry.withdraw("f").is_err());
    flow().publish(registry).unwrap();
    let ends = (&threads(2, 1, 0)[..], &threads(1, 1, 100)[..]);
    let mut ends = join(&[device], registry, ends, true).unwrap();
    let plan = Plan::new(3, 500);
    let outcome = run(&mut ends, plan, |_| {});
    check(&outcome, plan, 1);
}

#[test]
fn of_one_process() {
    keeps_its_promises(&LocalRegistry::new());
}

#[test]
fn over_tcp() {
    let (service, client) = service();
    keeps_its_promises(&client);
    // The process of the service sees the same flows.
    assert_eq!(service.local().look_up("f", NOW).unwrap().name(), "f");
}

#[test]
fn running_flows_go_on_without_it() {
    let (service, client) = service();
    flow().publish(&client).unwrap();
    let device = shm(1).remove(0);
    let lists = (&threads(2, 1, 0)[..], &threads(1, 1, 100)[..]);
    let mut ends = join(&[device], &client, lists, true).unwrap();
    drop(service);
    let error = client.look_up("f", NOW).unwrap_err();
    assert!(matches!(error, Error::Registry { .. }), "{error}");
    let plan = Plan::new(4, 2000);
    let outcome = run(&mut ends, plan, |_| {});
    check(&outcome, plan, 1);
}

#[test]
fn strangers_learn_nothing() {
    let (service, _) = service();
    let answer = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(service.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        // A reset is no answer, too.
        let _ = stream.read_to_end(&mut answer);
        answer
    };
    assert_eq!(answer(b"GET / HTTP/1.1\r\n\r\n"), b"");
    assert_eq!(answer(&head(&Token::new([6; 32]))), b"");
    // The right token, and then nonsense or a false length.
    let head = head(&Token::new([5; 32])).to_vec();
    assert_eq!(answer(&[&head[..], &[255; 4]].concat()), b"");
    assert_eq!(answer(&[&head[..], &[0, 0, 255, 0], &[9; 100]].concat()), b"");
    assert_eq!(answer(&[&head[..], &[1, 0, 0, 0, 77]].concat()), b"");
    let wrong = RegistryClient::new(Token::new([6; 32]), service.address());
    let error = wrong.look_up("f", NOW).unwrap_err();
    assert!(matches!(error, Error::Registry { .. }), "{error}");
}

#[test]
fn a_function_does_not_travel() {
    let (_service, client) = service();
    flow().route(Route::by(|_, _| 0)).publish(&client).unwrap();
    let device = shm(1).remove(0);
    let join = |id| SourceSetup::join(&device, &client, "f", Thread::new(0, id), NOW).unwrap();
    let error = join(0).connect(&client, NOW).err();
    assert!(matches!(error, Some(Error::Route { .. })), "{error:?}");
    // Nobody else has joined.
    let error = join(1).route_by(|_, _| 0).connect(&client, NOW).err();
    assert!(matches!(error, Some(Error::NotJoined { missing: 1, .. })), "{error:?}");
}

#[test]
fn nobody_listens() {
    let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    let client = RegistryClient::new(Token::new([5; 32]), nobody);
    let error = client.withdraw("f").unwrap_err();
    assert!(error.to_string().contains("no service answers"), "{error}");
}

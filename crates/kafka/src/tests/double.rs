//! A broker in this process, of one topic `t`, that answers from a script.
//!
//! Messages are laid out by hand, after the protocol's description. The versions are old ones.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use bytes::{Buf, BufMut};

use crate::client::address::Address;
use crate::client::encode::{NewRecord, Writer, batch};
use crate::client::settings::ClientSettings;

/// The broker's part, and what it has been asked for.
#[derive(Default)]
pub(crate) struct Script {
    pub(crate) partitions: i32,
    /// By partition, a batch that is there at any offset below the last stable one.
    pub(crate) batches: BTreeMap<i32, Vec<u8>>,
    /// Only the first partition of a request is given records.
    pub(crate) only_first: bool,
    pub(crate) last_stable: i64,
    pub(crate) high_watermark: i64,
    /// The first offset that is not in remote storage.
    pub(crate) first_local: i64,
    /// The code of each answer about records.
    pub(crate) fetch_error: i16,
    pub(crate) replica: i32,
    /// Requests for records are not answered.
    pub(crate) hangs: bool,
    /// A request waits for an answer.
    pub(crate) hung: bool,
    /// Offsets are refused until leaders have been asked for as often.
    pub(crate) looks_needed: usize,
    /// The topic is unknown until it has been asked for as often.
    pub(crate) looks_unknown: usize,
    /// Connections are closed at as many commits.
    pub(crate) closes: usize,
    /// By request, the partitions and their offsets.
    pub(crate) fetches: Vec<Vec<(i32, i64)>>,
    pub(crate) looks: usize,
    pub(crate) commits: usize,
    /// The code of each answer to a commit.
    pub(crate) commit_error: i16,
    /// Of the transactional id: the producer's epoch, and the state of its transaction. Without a
    /// state the broker knows no producers.
    pub(crate) epoch: i16,
    pub(crate) state: &'static str,
    /// The epochs with which producers began.
    pub(crate) inits: Vec<i16>,
}

pub(crate) struct Double {
    pub(crate) address: Address,
    script: Arc<Mutex<Script>>,
}

/// A batch of as many records, each with a value of as many bytes.
pub(crate) fn records(count: usize, value_bytes: usize) -> Vec<u8> {
    let writer = Writer { id: -1, epoch: -1, transactional: false };
    let record = NewRecord { value: Some(vec![b'x'; value_bytes]), ..NewRecord::default() };
    batch(writer, 0, &vec![&record; count], None).unwrap().to_vec()
}

impl Double {
    pub(crate) fn start(script: Script) -> Double {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let address = Address { host: "127.0.0.1".into(), port };
        let script = Arc::new(Mutex::new(script));
        let of_broker = script.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let script = of_broker.clone();
                thread::spawn(move || serve(stream.unwrap(), port, &script));
            }
        });
        Double { address, script }
    }

    pub(crate) fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap()
    }

    pub(crate) fn client(&self) -> ClientSettings {
        ClientSettings {
            servers: vec![self.address.clone()],
            client_id: "test".into(),
            tls: None,
            user: None,
            connect_timeout: Duration::from_secs(60),
            request_timeout: Duration::from_secs(60),
            away: None,
        }
    }
}

/// Waits until something is so.
pub(crate) fn until(mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < end, "it does not come to be");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Answers a client until it goes.
fn serve(mut stream: TcpStream, port: u16, script: &Mutex<Script>) {
    let mut length = [0; 4];
    while stream.read_exact(&mut length).is_ok() {
        let mut request = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut request).unwrap();
        let mut request = &request[..];
        let (kind, version, correlation) =
            (request.get_i16(), request.get_i16(), request.get_i32());
        text(&mut request);
        let mut out = vec![0; 4];
        out.put_i32(correlation);
        match kind {
            1 => fetch(request, script, &mut out),
            2 => offsets(request, &mut script.lock().unwrap(), &mut out),
            3 => metadata(request, port, &mut script.lock().unwrap(), &mut out),
            8 => {
                let mut script = script.lock().unwrap();
                script.commits += 1;
                if script.closes > 0 {
                    script.closes -= 1;
                    return;
                }
                // No delay, one topic, its partition.
                out.put_slice(&[0, 0, 0, 0, 0, 0, 0, 1]);
                put_text("t", &mut out);
                out.put_slice(&[0, 0, 0, 1, 0, 0, 0, 0]);
                out.put_i16(script.commit_error);
            }
            10 => {
                // No delay, no error, no message, broker 1.
                out.put_slice(&[0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 1]);
                put_text("127.0.0.1", &mut out);
                out.put_i32(port.into());
            }
            22 => init(request, &mut script.lock().unwrap(), &mut out),
            65 => {
                // Tags, no delay, one transaction without an error, its id `p`.
                out.put_slice(&[0, 0, 0, 0, 0, 2, 0, 0, 2, b'p']);
                let state = script.lock().unwrap().state;
                out.put_u8(state.len() as u8 + 1);
                out.put_slice(state.as_bytes());
                // Time-out, start, producer and epoch; no topics, no tags.
                out.put_slice(&[0; 4 + 8 + 8 + 2]);
                out.put_slice(&[1, 0, 0]);
            }
            // Versions: those of the first kind of answer have no tags.
            _ if version > 0 => out.put_slice(&[0, 35, 0, 0, 0, 0]),
            _ => {
                let all = [(1, 11), (2, 8), (3, 7), (8, 7), (10, 2), (22, 4), (65, 0)];
                let knows = if script.lock().unwrap().state.is_empty() { 5 } else { 7 };
                out.put_slice(&[0, 0, 0, 0, 0, knows]);
                for (kind, version) in &all[..knows as usize] {
                    [*kind, 0, *version].into_iter().for_each(|number| out.put_i16(number));
                }
            }
        }
        let length = out.len() as u32 - 4;
        out[..4].copy_from_slice(&length.to_be_bytes());
        if stream.write_all(&out).is_err() {
            return;
        }
    }
}

fn text(from: &mut &[u8]) -> String {
    let length = from.get_i16().max(0) as usize;
    let (text, rest) = from.split_at(length);
    *from = rest;
    String::from_utf8(text.to_vec()).unwrap()
}

fn put_text(text: &str, out: &mut Vec<u8>) {
    out.put_i16(text.len() as i16);
    out.put_slice(text.as_bytes());
}

/// Metadata 7. Among all topics are one that may not be seen, and one of Kafka's own.
fn metadata(mut request: &[u8], port: u16, script: &mut Script, out: &mut Vec<u8>) {
    script.looks += 1;
    let skipped = if request.get_i32() < 0 { 0 } else { 2 };
    [0, 1, 1].into_iter().for_each(|number| out.put_i32(number));
    put_text("127.0.0.1", out);
    out.put_i32(port.into());
    // No rack, no name of the cluster.
    out.put_i32(-1);
    out.put_i32(1);
    let (error, partitions) =
        if script.looks <= script.looks_unknown { (3, 0) } else { (0, script.partitions) };
    let topics = [(29, "secret", 0), (0, "__consumer_offsets", 1), (error, "t", partitions)];
    out.put_i32(3 - skipped as i32);
    for (error, name, partitions) in topics.into_iter().skip(skipped) {
        out.put_i16(error);
        put_text(name, out);
        out.put_u8(u8::from(name.starts_with('_')));
        out.put_i32(partitions);
        for partition in 0..partitions {
            out.put_i16(0);
            // The leader is broker 1 in epoch 3; there are no replicas.
            [partition, 1, 3, 0, 0, 0].into_iter().for_each(|number| out.put_i32(number));
        }
    }
}

/// `InitProducerId` 4: of producer 7, whose epoch rises.
fn init(request: &[u8], script: &mut Script, out: &mut Vec<u8>) {
    // The last are the epoch, and no tags.
    let mut epoch = &request[request.len() - 3..];
    let epoch = epoch.get_i16();
    script.inits.push(epoch);
    let is_fenced = epoch != script.epoch;
    script.epoch += i16::from(!is_fenced);
    out.put_slice(&[0; 1 + 4]);
    out.put_i16(if is_fenced { 90 } else { 0 });
    out.put_i64(7);
    out.put_i16(script.epoch);
    out.put_u8(0);
}

/// `ListOffsets` 8, of a topic's one partition.
fn offsets(mut request: &[u8], script: &mut Script, out: &mut Vec<u8>) {
    request.advance(1 + 4);
    let committed_only = request.get_i8() == 1;
    // One topic `t`, one partition, its number, an epoch.
    request.advance(1 + 2 + 1 + 4 + 4);
    let offset = match request.get_i64() {
        -4 => script.first_local,
        -1 if committed_only => script.last_stable,
        -1 => script.high_watermark,
        _ => 0,
    };
    let error = if script.looks < script.looks_needed { 6 } else { 0 };
    // Tags, no delay, one topic, its name, one partition, its number.
    out.put_slice(&[0, 0, 0, 0, 0, 2, 2, b't', 2, 0, 0, 0, 0]);
    out.put_i16(error);
    out.put_i64(-1);
    out.put_i64(offset);
    out.put_i32(3);
    out.put_slice(&[0, 0, 0]);
}

/// Fetch 11, of one topic.
fn fetch(mut request: &[u8], script: &Mutex<Script>, out: &mut Vec<u8>) {
    request.advance(4);
    let wait = Duration::from_millis(request.get_i32() as u64);
    request.advance(4 + 4 + 1 + 4 + 4 + 4);
    let name = text(&mut request);
    let asked: Vec<(i32, i64)> = (0..request.get_i32())
        .map(|_| {
            let partition = request.get_i32();
            request.advance(4);
            let offset = request.get_i64();
            request.advance(8 + 4);
            (partition, offset)
        })
        .collect();
    script.lock().unwrap().fetches.push(asked.clone());
    let hangs = || {
        let mut script = script.lock().unwrap();
        script.hung = script.hangs;
        script.hangs
    };
    while hangs() {
        thread::sleep(Duration::from_millis(1));
    }
    out.put_slice(&[0; 4 + 2 + 4]);
    out.put_i32(1);
    put_text(&name, out);
    out.put_i32(asked.len() as i32);
    let script = script.lock().unwrap();
    let mut is_empty = true;
    for (place, (partition, offset)) in asked.into_iter().enumerate() {
        let is_served = offset < script.last_stable && !(script.only_first && place > 0);
        let mut records = Vec::new();
        if let (true, Some(batch)) = (is_served, script.batches.get(&partition)) {
            records.clone_from(batch);
            records[..8].copy_from_slice(&offset.to_be_bytes());
            is_empty = false;
        }
        out.put_i32(partition);
        out.put_i16(script.fetch_error);
        [script.high_watermark, script.last_stable, 0].into_iter().for_each(|at| out.put_i64(at));
        // No transactions were aborted.
        out.put_i32(0);
        out.put_i32(script.replica);
        out.put_i32(records.len() as i32);
        out.put_slice(&records);
    }
    let is_refused = script.fetch_error != 0;
    drop(script);
    if is_empty && !is_refused {
        thread::sleep(wait);
    }
}

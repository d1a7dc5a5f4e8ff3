//! Producers of a job of several processes, each of which has slots of its own.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;

use millstream_contract::Result;
use millstream_contract::table::{OpenOptions, Sharing, Split, Table};
use millstream_ingest::{Producer, ProducerOptions};

use super::{Got, JOINED, batch, next, notices, poll, schema, table};

/// Greetings of table `bids`, with the token `s3cret`.
const GREETING_1: &[u8] = include_bytes!("../../../../tests/golden/wire/ring-1.greeting");
const GREETING_2: &[u8] = include_bytes!("../../../../tests/golden/wire/ring-2.greeting");

/// The table as each process has it open.
struct Job {
    processes: Vec<Vec<Box<dyn Split>>>,
    address: String,
}

fn open(processes: usize, options: &[(&str, &str)]) -> Vec<Vec<Box<dyn Split>>> {
    let open = |process| {
        let reader = (process, processes);
        let alone = OpenOptions::alone(1024, 0, 1);
        let at = OpenOptions { process, processes, reader, ..alone };
        table(options).unwrap().open(&[0, 1], &at).unwrap()
    };
    (0..processes).map(open).collect()
}

impl Job {
    /// All processes know each other's ports.
    fn new(processes: usize, options: &[(&str, &str)]) -> Job {
        let processes = open(processes, &[options, &[("transport", "shm")]].concat());
        let remark = processes[0][0].remark().unwrap();
        let address = remark.split("producers on ").nth(1).unwrap().split(',').next().unwrap();
        let job = Job { address: address.to_string(), processes };
        job.talk();
        job
    }

    /// The engine passes words on.
    fn talk(&self) {
        let senders = |process: usize| self.processes[process].iter().find_map(|s| s.senders());
        let all: Vec<_> = (0..self.processes.len()).filter_map(senders).collect();
        for (from, senders) in all.iter().enumerate() {
            let Some(word) = senders.word() else { continue };
            assert_eq!(senders.word(), None, "it is told once");
            let others = all.iter().enumerate().filter(|(to, _)| *to != from);
            others.for_each(|(_, other)| other.hear(from, &word).unwrap());
        }
    }

    fn options(&self, name: &str) -> ProducerOptions {
        ProducerOptions::new(&*self.address, "bids").name(name)
    }

    fn producer(&self, name: &str) -> Producer {
        self.options(name).connect(&schema()).unwrap()
    }

    /// The slot of a number, in the process that has it.
    fn slot(&mut self, slot: usize) -> &mut dyn Split {
        let process = slot % self.processes.len();
        &mut *self.processes[process][slot]
    }

    fn next(&mut self, slot: usize) -> Got {
        next(self.slot(slot))
    }

    fn finish(&mut self, slot: usize, producer: Producer) -> Result<u64> {
        let finishing = thread::spawn(move || producer.finish());
        while !finishing.is_finished() {
            poll(self.slot(slot));
        }
        finishing.join().unwrap()
    }

    fn are_absent(&self, slots: std::ops::Range<usize>) -> Vec<bool> {
        slots.map(|slot| self.processes[slot % self.processes.len()][slot].is_absent()).collect()
    }

    /// The answer to a greeting that goes on with the connection open.
    fn answer(address: &str, greeting: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(greeting).unwrap();
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).unwrap();
        let mut answer = vec![0; u32::from_le_bytes(answer) as usize];
        stream.read_exact(&mut answer).unwrap();
        String::from_utf8(answer).unwrap()
    }
}

#[test]
fn producers_are_divided_among_processes_and_the_table_ends_with_all_of_them() {
    let mut job = Job::new(2, &[("bounded", "true"), ("producers", "4")]);
    let mut producers: Vec<Producer> = ["a", "b", "c", "d"].map(|name| job.producer(name)).into();
    for (slot, producer) in producers.iter_mut().enumerate() {
        producer.send(&batch(slot as i64..slot as i64 + 1)).unwrap();
        assert_eq!(job.next(slot), JOINED);
        assert_eq!(job.next(slot), Got::Rows(vec![slot as i64], None));
    }
    for (slot, producer) in producers.into_iter().enumerate() {
        assert_eq!(poll(job.slot(4)), Got::Nothing, "the table has not ended");
        assert_eq!(poll(job.slot(5)), Got::Nothing, "the table has not ended");
        assert_eq!(job.finish(slot, producer).unwrap(), 1);
        job.talk();
    }
    assert!((0..16).all(|slot| job.next(slot) == Got::Ended));
    let late = job.options("late").connect(&schema()).unwrap_err().to_string();
    assert!(late.contains("the table has ended"), "{late}");
    let notices = [0, 1].map(|slot| notices(job.slot(slot)).join("\n"));
    assert!(notices[0].contains("producer c (") && !notices[0].contains("producer d ("));
    assert!(notices[1].contains("producer d (") && !notices[1].contains("producer c ("));
}

#[test]
fn no_slot_is_idle_before_producers_have_joined_anywhere() {
    let mut job = Job::new(2, &[("producers", "2")]);
    let _first = job.producer("first");
    assert_eq!(job.next(0), JOINED);
    job.talk();
    assert_eq!(job.are_absent(0..4), [false; 4]);
    let _second = job.producer("second");
    assert_eq!(job.next(1), JOINED);
    assert_eq!(job.are_absent(2..4), [false, true], "process 0 has not heard of it");
    job.talk();
    assert_eq!(job.are_absent(0..4), [false, false, true, true]);
}

#[test]
fn a_lost_producer_of_another_process_counts_no_more() {
    let mut job = Job::new(2, &[("producers", "3")]);
    let _first = job.producer("first");
    for name in ["second", "second-again"] {
        let lost = job.producer(name);
        assert_eq!(job.next(1), JOINED);
        drop(lost);
        while !notices(job.slot(1)).iter().any(|notice| notice.contains("was lost")) {
            assert_eq!(poll(job.slot(1)), Got::Nothing);
        }
        job.talk();
        assert_eq!(job.are_absent(2..4), [false, false], "two are there at most");
    }
    let _second = job.producer("second-again");
    let _third = job.producer("third");
    assert_eq!((job.next(1), job.next(2)), (JOINED, JOINED));
    job.talk();
    assert_eq!(job.are_absent(3..5), [true, true]);
}

#[test]
fn producers_max_holds_for_the_whole_job() {
    let job = Job::new(2, &[("producers.max", "3")]);
    let _present = ["a", "b", "c"].map(|name| job.producer(name));
    job.talk();
    let error = job.options("d").connect(&schema()).unwrap_err().to_string();
    assert!(error.contains("has 3 producers already"), "{error}");
    // Fewer slots than processes.
    let job = Job::new(3, &[("producers.max", "1")]);
    assert!(job.processes[1].iter().all(|split| split.senders().is_none()));
    let _present = job.producer("a");
    assert!(job.options("b").connect(&schema()).is_err());
}

#[test]
fn who_cannot_be_sent_elsewhere_stays() {
    let job = Job::new(2, &[("token", "s3cret")]);
    let _first = job.options("first").token("s3cret").connect(&schema()).unwrap();
    assert!(Job::answer(&job.address, GREETING_1).contains("welcome"));
    let answer = Job::answer(&job.address, GREETING_2);
    let port = answer.strip_prefix("{\"elsewhere\":").and_then(|rest| rest.strip_suffix('}'));
    let other = format!("127.0.0.1:{}", port.expect(&answer));
    // There, too, a producer is checked.
    let options = ProducerOptions::new(&*other, "bids").name("second");
    let error = options.clone().token("s3creT").connect(&schema()).unwrap_err().to_string();
    assert!(error.contains("table 'bids' has a token"), "{error}");
    assert!(Job::answer(&other, b"GET / HTTP/1.1\r\n\r\n").contains("no producer of Millstream"));
    assert!(Job::answer(&other, GREETING_2).contains("welcome"));
    let _second = options.token("s3cret").connect(&schema()).unwrap();
}

#[test]
fn rubbish_is_no_word() {
    let job = Job::new(2, &[]);
    let senders = job.processes[0][0].senders().unwrap();
    for rubbish in [&b""[..], b"rubbish", b"{}", &[0xff; 100]] {
        assert!(senders.hear(1, rubbish).is_err(), "{rubbish:?}");
    }
}

#[test]
fn flight_stays_with_the_coordinator() {
    let processes = open(2, &[]);
    assert!(processes[0][0].remark().is_some() && processes[1][0].remark().is_none());
    let mut all = processes.iter().flatten();
    assert!(all.all(|split| split.sharing() == Sharing::Coordinator && split.senders().is_none()));
    let all = open(2, &[("transport", "shm"), ("producers.max", "2")]);
    let all: Vec<Sharing> = all[1].iter().map(|split| split.sharing()).collect();
    assert_eq!(all, [Sharing::Reader(0), Sharing::Reader(1)]);
}

//! Producers over Arrow Flight, and the slots that they fill.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, AsArray, RecordBatch, StringArray};
use arrow::datatypes::Int64Type;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::utils::batches_to_flight_data;
use arrow_flight::{FlightData, FlightDescriptor, PutResult};
use futures_core::Stream;
use millstream_contract::table::{Chunk, OpenOptions, Split, SplitPoll, Table};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use super::{Got, JOINED, batch, farewell, next, notices, poll, rows, table};

/// An open table, which reads both columns.
pub(super) struct Open {
    pub(super) splits: Vec<Box<dyn Split>>,
    address: String,
    pub(super) runtime: Runtime,
}

impl Open {
    pub(super) fn new(options: &[(&str, &str)]) -> Open {
        Open::with_memory(options, u64::MAX)
    }

    pub(super) fn with_memory(options: &[(&str, &str)], memory_bytes: u64) -> Open {
        let open = OpenOptions { memory_bytes, ..OpenOptions::alone(1024, 0, 1) };
        let splits = table(options).unwrap().open(&[0, 1], &open).unwrap();
        let remark = splits[0].remark().unwrap();
        let address = remark.split("grpc://").nth(1).unwrap().split(',').next().unwrap();
        let address = format!("http://{address}");
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
        Open { splits, address, runtime }
    }

    pub(super) fn client(&self) -> FlightServiceClient<Channel> {
        let endpoint = Endpoint::from_shared(self.address.clone()).unwrap();
        FlightServiceClient::new(self.runtime.block_on(endpoint.connect()).unwrap())
    }

    pub(super) fn producer(&self, name: &str, first: Vec<FlightData>) -> Feeding {
        self.producer_with(name, None, first)
    }

    pub(super) fn producer_with(
        &self,
        name: &str,
        token: Option<&str>,
        first: Vec<FlightData>,
    ) -> Feeding {
        let (sender, receiver) = mpsc::channel(1);
        let mut client = self.client();
        let mut request = Request::new(Sending(receiver));
        request.metadata_mut().insert("millstream-producer", name.parse().unwrap());
        if let Some(token) = token {
            let value = format!("Bearer {token}").parse().unwrap();
            request.metadata_mut().insert("authorization", value);
        }
        let answer = self.runtime.spawn(async move {
            let mut results = client.do_put(request).await?.into_inner();
            let result = results.message().await?;
            assert!(results.message().await?.is_none());
            Ok::<_, Status>(result)
        });
        let feeding = Feeding { sender, answer };
        first.into_iter().for_each(|message| self.send(&feeding, message));
        feeding
    }

    pub(super) fn send(&self, feeding: &Feeding, message: FlightData) {
        self.runtime.block_on(feeding.sender.send(message)).unwrap();
    }

    /// The end of a producer's stream: the number of taken rows, or why it was refused.
    pub(super) fn end(&self, feeding: Feeding) -> std::result::Result<u64, Status> {
        drop(feeding.sender);
        self.answered(feeding.answer)
    }

    pub(super) fn answered(&self, answer: Answering) -> std::result::Result<u64, Status> {
        let result: Option<PutResult> = self.runtime.block_on(answer).unwrap()?;
        Ok(std::str::from_utf8(&result.unwrap().app_metadata).unwrap().parse().unwrap())
    }

    /// The next chunk of a slot; `None` at its end.
    pub(super) fn chunk(&mut self, slot: usize) -> Option<Box<dyn Chunk>> {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            match self.splits[slot].poll_next(0, Waker::noop()).unwrap() {
                SplitPoll::Chunk(chunk) => return Some(chunk),
                SplitPoll::Ended => return None,
                SplitPoll::Pending { .. } => assert!(Instant::now() < until, "nothing comes"),
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(super) fn poll(&mut self, slot: usize) -> Got {
        poll(&mut *self.splits[slot])
    }

    pub(super) fn next(&mut self, slot: usize) -> Got {
        next(&mut *self.splits[slot])
    }

    pub(super) fn notices(&mut self) -> Vec<String> {
        notices(&mut *self.splits[0])
    }

    pub(super) fn farewell(&mut self) -> String {
        farewell(&mut self.splits, |_| {})
    }
}

/// A producer's stream.
pub(super) struct Feeding {
    pub(super) sender: mpsc::Sender<FlightData>,
    pub(super) answer: Answering,
}

pub(super) type Answering = tokio::task::JoinHandle<std::result::Result<Option<PutResult>, Status>>;

struct Sending(mpsc::Receiver<FlightData>);

impl Stream for Sending {
    type Item = FlightData;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<FlightData>> {
        self.0.poll_recv(context)
    }
}

/// A schema, with the descriptor of a table, and batches.
pub(super) fn messages(name: &str, batches: Vec<RecordBatch>) -> Vec<FlightData> {
    let schema = batches[0].schema();
    let mut messages = batches_to_flight_data(&schema, batches).unwrap();
    messages[0].flight_descriptor = Some(FlightDescriptor::new_path(vec![name.into()]));
    messages
}

pub(super) fn with_watermark(message: FlightData, us: i64) -> FlightData {
    FlightData { app_metadata: us.to_le_bytes().to_vec().into(), ..message }
}

#[test]
fn batches_come_in_order_with_watermarks_and_the_answer_counts_them() {
    let mut open = Open::new(&[("bounded", "true")]);
    let mut sent = messages("bids", vec![batch(0..3), batch(3..5), batch(5..6)]);
    sent[2] = with_watermark(sent[2].clone(), 77);
    sent.insert(3, with_watermark(FlightData::default(), 99));
    let feeding = open.producer("shop-3", sent);
    assert_eq!(open.next(0), JOINED);
    assert_eq!(rows(&mut *open.splits[0], 5), Got::Rows((0..5).collect(), Some(77)));
    assert_eq!(open.next(0), Got::Rows(vec![], Some(99)));
    assert_eq!(open.next(0), Got::Rows(vec![5], None));
    assert_eq!(open.poll(0), Got::Nothing);
    assert!(!open.splits[0].is_absent());
    assert_eq!(open.end(feeding).unwrap(), 6);
    assert!((0..16).all(|slot| open.next(slot) == Got::Ended));
    let notices = open.notices();
    assert!(notices[0].starts_with("channel bids: producer shop-3 (127.0.0.1:"), "{notices:?}");
    assert!(notices[0].ends_with("has joined") && notices[1].ends_with("ended after 6 records"));
}

#[test]
fn a_slot_without_a_producer_is_absent_once_enough_have_joined() {
    let mut open = Open::new(&[("producers", "2"), ("producers.max", "3")]);
    let absent = |open: &Open| -> Vec<bool> { open.splits.iter().map(|s| s.is_absent()).collect() };
    assert_eq!(absent(&open), [false; 3]);
    let first = open.producer("a", messages("bids", vec![batch(0..1)]));
    assert_eq!(open.next(0), JOINED);
    assert_eq!(absent(&open), [false; 3]);
    let second = open.producer("b", messages("bids", vec![batch(1..2)]));
    assert_eq!(open.next(1), JOINED);
    assert_eq!(absent(&open), [false, false, true]);
    drop(first.sender);
    std::thread::sleep(Duration::from_millis(100));
    assert!(!first.answer.is_finished(), "its record has not been decoded");
    assert_eq!(absent(&open), [false, false, true]);
    assert_eq!(open.next(0), Got::Rows(vec![0], None));
    assert_eq!(open.answered(first.answer).unwrap(), 1);
    assert_eq!(absent(&open), [true, false, true]);
    let third = open.producer("c", messages("bids", vec![batch(2..3)]));
    assert_eq!(open.next(0), JOINED);
    assert_eq!(absent(&open), [false, false, true], "it has the slot of the first");
    drop((second, third));
}

#[test]
fn who_does_not_fit_is_refused_with_the_reason() {
    let mut open = Open::new(&[("producers.max", "1"), ("token", "s3cret")]);
    let refused = |token: Option<&str>, messages: Vec<FlightData>| {
        let feeding = open.producer_with("a", token, messages);
        let status = open.end(feeding).unwrap_err();
        (status.code(), status.message().to_string())
    };
    let whole = || messages("bids", vec![batch(0..1)]);
    let right = Some("s3cret");
    for wrong in [None, Some("s3creT"), Some("s3cre"), Some("s3cret2")] {
        let (code, message) = refused(wrong, whole()[..1].to_vec());
        assert_eq!(code, tonic::Code::Unauthenticated);
        assert!(message.contains("table 'bids' has a token") && !message.contains("s3cret"));
    }
    let (code, message) = refused(right, messages("bets", vec![batch(0..1)])[..1].to_vec());
    assert_eq!((code, &*message), (tonic::Code::NotFound, "no table 'bets': there is bids"));
    let narrow = batch(0..1).project(&[0]).unwrap();
    let (code, message) = refused(right, messages("bids", vec![narrow])[..1].to_vec());
    assert_eq!(code, tonic::Code::InvalidArgument);
    assert!(message.contains("producer a (127.0.0.1:"), "{message}");
    assert!(message.contains("there is no column 't'"), "{message}");
    let other = RecordBatch::try_from_iter([
        ("n", Arc::new(StringArray::from(vec!["1"])) as ArrayRef),
        ("t", Arc::new(StringArray::from(vec!["1"])) as ArrayRef),
    ]);
    let (_, message) = refused(right, messages("bids", vec![other.unwrap()])[..1].to_vec());
    assert!(message.contains("column 'n' is declared as BIGINT, but comes as STRING"), "{message}");
    let mut odd = whole();
    odd[1].app_metadata = vec![1, 2, 3].into();
    let (_, message) = refused(right, odd);
    assert!(message.contains("app_metadata has 3 bytes: a watermark has 8"), "{message}");
    // All of these have given back their slot.
    let present = open.producer_with("b", right, whole());
    let (code, message) = loop {
        match refused(right, whole()[..1].to_vec()) {
            // The other one may not have joined yet.
            (tonic::Code::Ok, _) => {}
            refused => break refused,
        }
    };
    assert_eq!(code, tonic::Code::ResourceExhausted);
    assert!(message.contains("has 1 producer already; 'producers.max'"), "{message}");
    // Streams without a record have been there before.
    while open.next(0) != Got::Rows(vec![0], None) {}
    assert_eq!(open.end(present).unwrap(), 1);
    let notices = open.notices().join("\n");
    let fault = "was sent away after 0 records, which count: channel bids, producer a";
    assert!(notices.contains(fault) && notices.contains("app_metadata has 3 bytes"), "{notices}");
}

#[test]
fn a_call_without_the_token_is_refused_before_it_sends() {
    let open = Open::new(&[("token", "s3cret")]);
    let Feeding { sender, answer } = open.producer_with("a", Some("s3creT"), Vec::new());
    assert_eq!(open.answered(answer).unwrap_err().code(), tonic::Code::Unauthenticated);
    drop(sender);
}

#[test]
fn watermarks_alone_wait_as_one() {
    let mut open = Open::new(&[]);
    let mut sent = messages("bids", vec![batch(0..1)])[..1].to_vec();
    sent.extend([7, 9, 8].map(|us| with_watermark(FlightData::default(), us)));
    let feeding = open.producer("a", sent);
    assert_eq!(open.end(feeding).unwrap(), 0);
    let got = [open.next(0), open.next(0), open.poll(0)];
    assert_eq!(got, [JOINED, Got::Rows(vec![], Some(9)), Got::Nothing]);
}

#[test]
fn a_slow_job_holds_its_producers_back() {
    // 16 slots of an eighth of this.
    let mut open = Open::with_memory(&[], 8 << 20);
    let mut sent = messages("bids", vec![batch(0..2000)]);
    let one = sent.pop().unwrap();
    let bytes = one.data_body.len();
    let feeding = open.producer("a", sent);
    assert_eq!(open.next(0), JOINED);
    let (count, sender) = (400, feeding.sender.clone());
    let sending = open.runtime.spawn(async move {
        for number in 0..count {
            sender.send(one.clone()).await.map_err(|_| number)?;
        }
        Ok::<_, usize>(())
    });
    std::thread::sleep(Duration::from_millis(500));
    assert!(!sending.is_finished(), "{count} messages of {bytes} bytes wait in 64 KiB");
    let mut rows = 0;
    while rows < count * 2000 {
        let Got::Rows(numbers, _) = open.next(0) else { panic!("after {rows} rows") };
        rows += numbers.len();
    }
    open.runtime.block_on(sending).unwrap().unwrap();
    assert_eq!(open.end(feeding).unwrap(), (count * 2000) as u64);
}

#[test]
fn what_was_sent_before_it_is_drained_counts() {
    // A batch that comes after the first call is refused: then another job is tried.
    let some = [1, 10, 100, 1000, 10_000].into_iter().find_map(|pause_ms| {
        let mut open = Open::new(&[]);
        let feeding = open.producer("a", messages("bids", vec![batch(0..2)]));
        assert_eq!(open.next(0), JOINED);
        std::thread::sleep(Duration::from_millis(pause_ms));
        open.splits[0].drain().then_some((open, feeding))
    });
    let (mut open, feeding) = some.expect("a batch that comes before the job is drained");
    assert!((1..16).all(|slot| !open.splits[slot].drain()));
    let more = messages("bids", vec![batch(2..3)]).remove(1);
    let _ = open.runtime.block_on(feeding.sender.send(more));
    let status = open.end(feeding).unwrap_err();
    assert!(status.message().contains("the job is being drained"), "{status}");
    assert_eq!(open.next(0), Got::Rows(vec![0, 1], None));
    assert!((0..16).all(|slot| open.next(slot) == Got::Ended));
}

#[test]
fn two_tables_share_an_address_but_not_a_name() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let address = free.to_string();
    let of = |name: &str| table(&[("listen", &address), ("name", name)]).unwrap();
    let alone = OpenOptions::alone(1024, 0, 1);
    let bids = of("bids").open(&[0], &alone).unwrap();
    let asks = of("asks").open(&[0], &alone).unwrap();
    let error = of("asks").open(&[0], &alone).err().unwrap().to_string();
    assert!(error.contains("two tables of") && error.contains("'asks'"), "{error}");
    drop((bids, asks));
    assert_eq!(of("asks").open(&[0], &alone).unwrap().len(), 16, "the address is free again");
}

#[test]
fn options_are_checked() {
    let error = |options: &[(&str, &str)]| table(options).unwrap_err().to_string();
    let text = error(&[("producers", "3"), ("producers.max", "2")]);
    assert!(text.contains("2 is less than 'producers' = '3'"), "{text}");
    assert!(error(&[("on_loss", "cry")]).contains("expected 'fail' or 'notice', found 'cry'"));
    assert!(error(&[("producer", "3")]).contains("did you mean 'producers'?"));
    let error = table(&[]).unwrap().check_resumable().unwrap_err().to_string();
    assert!(error.contains("come only once"), "{error}");
}

/// The messages of an Arrow IPC stream, each with a length and metadata in front of its body.
fn messages_of(mut stream: &[u8]) -> Vec<FlightData> {
    let mut messages = Vec::new();
    loop {
        let word = |at: usize| u32::from_le_bytes(stream[at..at + 4].try_into().unwrap());
        assert_eq!(word(0), u32::MAX, "each message begins so");
        let length = word(4) as usize;
        if length == 0 {
            return messages;
        }
        let header = &stream[8..8 + length];
        let body = arrow::ipc::root_as_message(header).unwrap().bodyLength() as usize;
        messages.push(FlightData {
            data_header: header.to_vec().into(),
            data_body: stream[8 + length..][..body].to_vec().into(),
            ..FlightData::default()
        });
        stream = &stream[8 + length + body..];
    }
}

/// Written by `pyarrow`: packed buffers, a dictionary, and an addition to it.
#[test]
fn a_stream_of_version_1_is_taken() {
    let golden = include_bytes!("../../../../tests/golden/wire/flight-1.arrows");
    let mut sent = messages_of(golden);
    assert_eq!(sent.len(), 5, "a schema, a dictionary, a batch, an addition, a batch");
    sent[0].flight_descriptor = Some(FlightDescriptor::new_path(vec!["bids".into()]));
    let last = sent.pop().unwrap();
    sent.push(with_watermark(last, 1_700_000_000_000_000));
    let mut open = Open::new(&[("bounded", "true")]);
    let feeding = open.producer("golden", sent);
    assert_eq!(open.next(0), JOINED);
    let mut texts = Vec::new();
    for (expected, watermark) in [(vec![1, 2, 3], None), (vec![4, 5], Some(1_700_000_000_000_000))]
    {
        let decoded = open.chunk(0).expect("a batch").decode_reporting().unwrap();
        let numbers = decoded.batch.column(0).as_primitive::<Int64Type>().values().to_vec();
        assert_eq!((numbers, decoded.sent_watermark_us), (expected, watermark));
        let column = decoded.batch.column(1).as_string::<i32>();
        texts.extend(column.iter().map(|text| text.map(str::to_string)));
    }
    let expected = [Some("mill"), Some("stream"), None, Some("weir"), Some("mill")];
    assert_eq!(texts, expected.map(|text| text.map(str::to_string)));
    assert_eq!(open.end(feeding).unwrap(), 5);
}

//! Tests of P2 over several processes: the same rows, whatever the number of processes and workers,
//! the fabric and the sizes of rings. Each process is a thread here, with a device of its own.

use crate::support::*;
use millstream_contract::Settings;
use millstream_contract::settings::{Exchange, FragmentMode};
use millstream_fabric::Fabric;
use millstream_fabric::setup::Token;
use millstream_fabric::shm::ShmDevice;
use millstream_fabric::tcp::TcpDevice;
use millstream_flow::channel::Settings as Channels;

fn similar(rows: &[String], expected: &[String], what: &str) {
    let differing = rows.iter().zip(expected).find(|(a, b)| a != b);
    assert!(differing.is_none(), "{what}\n  first difference: {differing:?}");
    assert_eq!(rows.len(), expected.len(), "{what}\n  rows and expected rows");
}

fn agrees<F: Fabric>(open: impl Fn() -> F, exchange: Exchange, seed: u64) {
    let mut random = Random::new(seed);
    let splits = 1 + random.below(5) as usize;
    let keys = [1, 60, 100_000][random.below(3) as usize];
    let data = records(&mut random, splits, 4_000, keys);
    let window = [None, Some(500), Some(10_000)][random.below(3) as usize];
    let source = table(&data, &mut random, 300);
    let (expected, late, _) = oracle(&data, window, 100_000, 0);
    let query = query(source, window, 100_000);
    for (processes, workers) in [(2, 1), (2, 2), (4, 1), (3, 2)] {
        let modes = [FragmentMode::Auto, FragmentMode::Aggregate, FragmentMode::PassThrough];
        let settings = Settings {
            workers,
            epoch_bytes: [1, 10_000, 64 << 20][random.below(3) as usize],
            fragment_mode: modes[random.below(3) as usize],
            exchange,
            ..Settings::default()
        };
        let channels = Channels {
            slots: [1, 2, 8][random.below(3) as usize],
            slot_bytes: [512, 4096, 65_536][random.below(3) as usize],
            ..Channels::default()
        };
        let devices: Vec<F> = (0..processes).map(|_| open()).collect();
        let what = format!("seed {seed}, {processes} processes, {settings:?}, {channels:?}");
        let results = run_distributed(
            &query,
            &settings,
            meshes(&devices, workers, channels, settings.exchange),
        );
        let errors: Vec<String> =
            results.iter().filter_map(|(_, rows)| Some(rows.as_ref().err()?.to_string())).collect();
        assert!(errors.is_empty(), "{what}: {errors:#?}");
        let mut stats = Vec::new();
        for (process, (of, rows)) in results.into_iter().enumerate() {
            let rows = rows.unwrap_or_else(|e| panic!("{what}, process {process}: {e}"));
            match process {
                0 => similar(&rows, &expected, &what),
                _ => assert!(rows.is_empty(), "{what}: rows stay in process {process}"),
            }
            stats.push(of);
        }
        assert_eq!(stats.iter().map(|s| s.records).sum::<u64>(), splits as u64 * 4_000, "{what}");
        assert_eq!(stats.iter().map(|s| s.late_records).sum::<u64>(), late, "{what}");
        assert!(stats.iter().any(|s| s.rows_sent > 0 && s.messages_sent > 0), "{what}: {stats:?}");
    }
}

#[test]
fn processes_agree_over_shared_memory() {
    let token = Token::new([1; 32]);
    (0..6).for_each(|seed| agrees(|| ShmDevice::open(token).unwrap(), Exchange::LateMerge, seed));
}

#[test]
fn processes_agree_over_tcp() {
    let token = Token::new([1; 32]);
    let open = || TcpDevice::open(token, "127.0.0.1:0".parse().unwrap()).unwrap();
    (6..10).for_each(|seed| agrees(open, Exchange::LateMerge, seed));
}

#[test]
fn processes_that_exchange_records_agree() {
    let token = Token::new([1; 32]);
    for (seed, exchange) in (10..18).zip([Exchange::Repartition, Exchange::Interleaved].repeat(4)) {
        agrees(|| ShmDevice::open(token).unwrap(), exchange, seed);
    }
    let open = || TcpDevice::open(token, "127.0.0.1:0".parse().unwrap()).unwrap();
    agrees(open, Exchange::Repartition, 18);
    agrees(open, Exchange::Interleaved, 19);
}

/// Within one process, too, whatever the number of workers.
#[test]
fn workers_that_exchange_records_agree() {
    for seed in 20..26 {
        let mut random = Random::new(seed);
        let keys = [1, 60, 100_000][random.below(3) as usize];
        let data = records(&mut random, 3, 5_000, keys);
        let window = [None, Some(500), Some(10_000)][random.below(3) as usize];
        let source = table(&data, &mut random, 300);
        let (expected, late, _) = oracle(&data, window, 100_000, 0);
        let query = query(source, window, 100_000);
        for exchange in [Exchange::Repartition, Exchange::Interleaved] {
            for workers in [1, 2, 3, 4] {
                let settings = Settings { workers, exchange, ..Settings::default() };
                let (stats, rows) = run(&query, &settings);
                let what = format!("seed {seed}, {settings:?}");
                similar(&rows.unwrap_or_else(|e| panic!("{what}: {e}")), &expected, &what);
                assert_eq!((stats.records, stats.late_records), (15_000, late), "{what}");
                assert!(stats.rows_shipped > 0 && stats.segments_shipped == 0, "{what}: {stats:?}");
            }
        }
    }
}

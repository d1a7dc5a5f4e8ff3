//! Chunks of one row group, in any order and by several threads.

use millstream_contract::table::Chunk;
use parquet::file::properties::WriterVersion;

use super::*;

/// Chunks of a file, in their order.
fn chunks(table: &FileTable) -> Vec<Box<dyn Chunk>> {
    let options = OpenOptions::alone(100, 0, 1);
    let mut split = table.open(&[0, 1, 2], &options).unwrap().remove(0);
    let mut chunks = Vec::new();
    while let SplitPoll::Chunk(chunk) = split.poll_next(0, Waker::noop()).unwrap() {
        chunks.push(chunk);
    }
    chunks
}

/// The first pages of each column refer to a dictionary, which then grows too large.
#[test]
fn chunks_of_a_row_group_are_the_same_in_any_order() {
    let batch = rows(400_000);
    let schema = Arc::new(Schema::new(vec![
        field("n", DataType::Int32),
        field("s", DataType::Utf8),
        field("x", DataType::Float64),
    ]));
    let pages = [(WriterVersion::PARQUET_1_0, 900), (WriterVersion::PARQUET_2_0, 1 << 20)];
    for (version, page_rows) in pages {
        let properties = WriterProperties::builder()
            .set_writer_version(version)
            .set_max_row_group_row_count(Some(1 << 20))
            .set_data_page_row_count_limit(page_rows)
            .set_dictionary_page_size_limit(100_000)
            .set_compression(Compression::SNAPPY)
            .build();
        let mut writer =
            ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        let file = Scratch::new(&writer.into_inner().unwrap());
        let table = file.table(&schema);
        let count = chunks(&table).len();
        assert!(count > 3, "{count} chunks");
        let same = |mut decoded: Vec<(usize, RecordBatch)>| {
            decoded.sort_by_key(|(number, _)| *number);
            let decoded: Vec<_> = decoded.into_iter().map(|(_, batch)| batch).collect();
            let whole = concat_batches(&schema, &decoded).unwrap();
            for (column, written) in [0, 1, 3].into_iter().enumerate() {
                assert_eq!(whole.column(column), batch.column(written));
            }
        };
        let mut reversed: Vec<_> = chunks(&table).into_iter().enumerate().collect();
        reversed.reverse();
        same(
            reversed.into_iter().map(|(number, chunk)| (number, chunk.decode().unwrap())).collect(),
        );
        let waiting = std::sync::Mutex::new(chunks(&table).into_iter().enumerate());
        let decode_some = || {
            let mut decoded = Vec::new();
            loop {
                let next = waiting.lock().unwrap().next();
                let Some((number, chunk)) = next else { return decoded };
                decoded.push((number, chunk.decode().unwrap()));
            }
        };
        let decoded = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(decode_some)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        same(decoded);
    }
}

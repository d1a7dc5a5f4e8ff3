//! Good Parquet and Arrow files to start from.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Decimal128Array, DictionaryArray, Float64Array,
    Int32Builder, Int64Array, ListBuilder, RecordBatch, StringArray, StructArray,
    TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, UInt32Type};
use arrow::ipc::CompressionType;
use arrow::ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};

/// A few rows of the types that are laid out differently.
fn rows(first: i64, count: i64) -> RecordBatch {
    let range = || first..first + count;
    let mut lists = ListBuilder::new(Int32Builder::new());
    for n in range() {
        lists.append_option((n % 3 != 0).then(|| (0..n % 4).map(|i| Some(i as i32))));
    }
    let texts: StringArray =
        range().map(|n| (n % 5 != 0).then(|| format!("text {}", n % 7))).collect();
    let packed: DictionaryArray<UInt32Type> = texts.iter().collect();
    let inner = Arc::new(Field::new("inner", DataType::Boolean, true));
    let flags: ArrayRef =
        Arc::new(range().map(|n| (n % 2 == 0).then_some(n > 3)).collect::<BooleanArray>());
    let bytes: Vec<Vec<u8>> = range().map(|n| vec![n as u8; (n % 3) as usize]).collect();
    let columns: [(&str, ArrayRef, bool); 9] = [
        ("n", Arc::new(range().map(|n| (n % 6 != 0).then_some(n)).collect::<Int64Array>()), true),
        ("text", Arc::new(texts), true),
        ("packed", Arc::new(packed), true),
        ("x", Arc::new(range().map(|n| Some(n as f64)).collect::<Float64Array>()), true),
        ("ts", Arc::new(TimestampMicrosecondArray::from_iter_values(range())), false),
        ("d", Arc::new(Decimal128Array::from_iter_values(range().map(i128::from))), true),
        ("bytes", Arc::new(BinaryArray::from_iter_values(bytes)), true),
        ("list", Arc::new(lists.finish()), true),
        ("row", Arc::new(StructArray::from(vec![(inner, flags)])), true),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

/// Parquet files, each behind a byte that chooses what is asked.
pub(crate) fn parquet_files() -> Vec<Vec<u8>> {
    let versions = [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0];
    let packings =
        [Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::ZSTD(Default::default())];
    let mut files = Vec::new();
    for (version, packing) in versions.into_iter().flat_map(|v| packings.map(|p| (v, p))) {
        for dictionary in [true, false] {
            let properties = WriterProperties::builder()
                .set_writer_version(version)
                .set_compression(packing)
                .set_dictionary_enabled(dictionary)
                .set_statistics_enabled(EnabledStatistics::Page)
                .set_data_page_row_count_limit(8)
                .set_write_batch_size(4)
                .set_max_row_group_row_count(Some(20))
                .build();
            let batch = rows(0, 30);
            let mut writer =
                ArrowWriter::try_new(vec![0], batch.schema(), Some(properties)).unwrap();
            writer.write(&batch).unwrap();
            files.push(writer.into_inner().unwrap());
        }
    }
    files
}

/// Arrow files and streams, likewise.
pub(crate) fn arrow_files() -> Vec<Vec<u8>> {
    let mut files = Vec::new();
    for packing in [None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)] {
        let options = || IpcWriteOptions::default().try_with_compression(packing).unwrap();
        let batches = [rows(0, 20), rows(20, 7)];
        let schema = batches[0].schema();
        let mut writer = StreamWriter::try_new_with_options(vec![0], &schema, options()).unwrap();
        batches.iter().for_each(|batch| writer.write(batch).unwrap());
        files.push(writer.into_inner().unwrap());
        let mut writer = FileWriter::try_new_with_options(vec![0], &schema, options()).unwrap();
        // A file has one dictionary for each column.
        writer.write(&batches[0]).unwrap();
        writer.write(&batches[0].slice(3, 9)).unwrap();
        writer.finish().unwrap();
        files.push(writer.into_inner().unwrap());
    }
    files
}

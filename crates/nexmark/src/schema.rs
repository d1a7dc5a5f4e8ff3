//! The columns of the stream.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};

const TIME: DataType = DataType::Timestamp(TimeUnit::Millisecond, None);

fn row(fields: &[(&str, DataType)]) -> Fields {
    fields.iter().map(|(name, of)| Field::new(*name, of.clone(), true)).collect()
}

/// The fields of a person.
pub(crate) fn person() -> Fields {
    row(&[
        ("id", DataType::Int64),
        ("name", DataType::Utf8),
        ("emailAddress", DataType::Utf8),
        ("creditCard", DataType::Utf8),
        ("city", DataType::Utf8),
        ("state", DataType::Utf8),
        ("dateTime", TIME),
        ("extra", DataType::Utf8),
    ])
}

/// The fields of an auction.
pub(crate) fn auction() -> Fields {
    row(&[
        ("id", DataType::Int64),
        ("itemName", DataType::Utf8),
        ("description", DataType::Utf8),
        ("initialBid", DataType::Int64),
        ("reserve", DataType::Int64),
        ("dateTime", TIME),
        ("expires", TIME),
        ("seller", DataType::Int64),
        ("category", DataType::Int64),
        ("extra", DataType::Utf8),
    ])
}

/// The fields of a bid.
pub(crate) fn bid() -> Fields {
    row(&[
        ("auction", DataType::Int64),
        ("bidder", DataType::Int64),
        ("price", DataType::Int64),
        ("channel", DataType::Utf8),
        ("url", DataType::Utf8),
        ("dateTime", TIME),
        ("extra", DataType::Utf8),
    ])
}

/// The columns of the stream, as Flink's suite declares them: the row of each event, by kind.
pub fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("event_type", DataType::Int32, true),
        Field::new("person", DataType::Struct(person()), true),
        Field::new("auction", DataType::Struct(auction()), true),
        Field::new("bid", DataType::Struct(bid()), true),
    ]))
}

//! Values that have to be held as they stand.

use super::*;

/// What is said of a value, of which a declared column takes something else.
fn refused(data_type: &DataType, text: &str) -> Option<String> {
    let schema = schema(&[("c", data_type.clone(), true)]);
    let dialect = |exact| Dialect { exact, header: Header::Absent, ..Dialect::default() };
    let text = format!("{text}\n");
    assert!(read(&text, &schema, &dialect(false)).is_ok(), "{text}");
    read(&text, &schema, &dialect(true)).err().map(|error| error.to_string())
}

#[test]
fn digits_that_would_be_lost_are_an_error() {
    let micros = DataType::Time64(TimeUnit::Microsecond);
    let stamp = |unit| DataType::Timestamp(unit, None);
    let wide = DataType::Decimal128(38, 0);
    for (data_type, text, fits) in [
        (&wide, "99999999999999999999", true),
        (&wide, "-12.000", true),
        (&wide, "1.5e1", true),
        (&wide, "99999999999999999999.5", false),
        (&wide, "0.4", false),
        (&wide, "1e-1", false),
        (&wide, " 7.25 ", false),
        (&stamp(TimeUnit::Millisecond), "2024-05-01 12:00:00.999", true),
        (&stamp(TimeUnit::Millisecond), "2024-05-01T12:00:00.999000", true),
        (&stamp(TimeUnit::Millisecond), "2024-05-01 12:00:00.999999", false),
        (&stamp(TimeUnit::Millisecond), "1969-12-31 23:59:59.9990001", false),
        (&stamp(TimeUnit::Microsecond), "2024-05-01 12:00:00.9999991", false),
        (&stamp(TimeUnit::Nanosecond), "2024-05-01 12:00:00.999999999", true),
        (&DataType::Time32(TimeUnit::Millisecond), "12:00:00.1230", true),
        (&DataType::Time32(TimeUnit::Millisecond), "12:00:00.1239", false),
        (&micros, "12:00:00.1234567", false),
    ] {
        let error = refused(data_type, text);
        assert_eq!(error.is_none(), fits, "{text}: {error:?}");
        let expected = format!("for column 'c', found '{text}', which has more digits");
        assert!(error.is_none_or(|error| error.contains(&expected)), "{text}");
    }
}

#[test]
fn what_people_use_as_names_is_no_number() {
    for data_type in [DataType::Int64, DataType::Float64, DataType::Decimal128(38, 0)] {
        for text in ["0012", "-007", "+49", " 007 "] {
            let error = refused(&data_type, text);
            assert!(error.is_some_and(|error| error.contains(", found '")), "{text}");
        }
        for text in ["0", "-0", "10", "-7"] {
            assert_eq!(refused(&data_type, text), None, "{text}");
        }
    }
    assert_eq!(refused(&DataType::Float64, "0.5"), None);
    for (text, fits) in [("true", true), ("FALSE", true), ("1", false), ("t", false)] {
        assert_eq!(refused(&DataType::Boolean, text).is_none(), fits, "{text}");
    }
}

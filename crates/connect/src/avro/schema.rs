//! Schemas of Avro, as a tree of their own.
//!
//! References to named types are replaced by their definitions, so each place of a schema can be
//! changed by itself. Each record, enum and fixed has a number of its own, which is its name when
//! the library reads the schema ([`Avro::json`]). So names of types need not be the same in two
//! schemas, as in Avro's own library for Java. The price: recursive schemas are refused.

use std::collections::HashMap;

use arrow::datatypes::{DECIMAL128_MAX_PRECISION, TimeUnit};
use serde_json::{Map, Value, json};

/// Types in a schema, once references are replaced. Schemas of people have hundreds.
const TYPES_MAX: usize = 20_000;
/// How deep types may be nested; the library reads JSON of 128 levels, four of which are a record.
const DEPTH_MAX: usize = 30;

/// A type of Avro.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Avro {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    String,
    Date,
    /// In milliseconds an int, in microseconds a long.
    Time(TimeUnit),
    /// Milliseconds and finer. A local timestamp is no instant.
    Timestamp {
        unit: TimeUnit,
        local: bool,
    },
    /// Bytes, or fixed.
    Decimal {
        precision: u8,
        scale: i8,
        fixed: Option<Fixed>,
    },
    Fixed(Fixed),
    Enum {
        number: usize,
        symbols: Vec<String>,
    },
    Array(Box<Avro>),
    Map(Box<Avro>),
    Record {
        number: usize,
        fields: Vec<AvroField>,
    },
    Union(Vec<Avro>),
}

/// A type of so many bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fixed {
    pub(super) number: usize,
    pub(super) size: usize,
}

/// A field of a record.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct AvroField {
    pub(super) name: String,
    pub(super) aliases: Vec<String>,
    pub(super) of: Avro,
    pub(super) default: Option<Value>,
}

impl Avro {
    /// Reads a schema. The error is the schema's fault, as text.
    pub(super) fn parse(text: &str) -> Result<Avro, String> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| format!("it is no JSON: {error}"))?;
        let mut parser = Parser { named: HashMap::new(), open: Vec::new(), types: 0 };
        parser.parse(&value, "", 0)
    }

    /// The schema for the library.
    pub(super) fn json(&self) -> Value {
        let logical = |of: &str, name: &str| json!({"type": of, "logicalType": name});
        match self {
            Avro::Null => "null".into(),
            Avro::Boolean => "boolean".into(),
            Avro::Int => "int".into(),
            Avro::Long => "long".into(),
            Avro::Float => "float".into(),
            Avro::Double => "double".into(),
            Avro::Bytes => "bytes".into(),
            Avro::String => "string".into(),
            Avro::Date => logical("int", "date"),
            Avro::Time(TimeUnit::Millisecond) => logical("int", "time-millis"),
            Avro::Time(_) => logical("long", "time-micros"),
            Avro::Timestamp { .. } => logical("long", &self.shown()),
            Avro::Decimal { precision, scale, fixed } => {
                let mut json = fixed.map_or(json!({"type": "bytes"}), Fixed::json);
                json["logicalType"] = "decimal".into();
                json["precision"] = (*precision).into();
                json["scale"] = (*scale).into();
                json
            }
            Avro::Fixed(fixed) => fixed.json(),
            Avro::Enum { number, symbols } => {
                json!({"type": "enum", "name": name(*number), "symbols": symbols})
            }
            Avro::Array(items) => json!({"type": "array", "items": items.json()}),
            Avro::Map(values) => json!({"type": "map", "values": values.json()}),
            Avro::Union(types) => types.iter().map(Avro::json).collect(),
            Avro::Record { number, fields } => {
                let field = |field: &AvroField| {
                    let mut json = json!({"name": field.name, "type": field.of.json()});
                    if let Some(default) = &field.default {
                        json["default"] = default.clone();
                    }
                    json
                };
                let fields: Vec<Value> = fields.iter().map(field).collect();
                json!({"type": "record", "name": name(*number), "fields": fields})
            }
        }
    }

    /// The type's name, for messages.
    pub(super) fn shown(&self) -> String {
        match self {
            Avro::Date => "date".into(),
            Avro::Time(TimeUnit::Millisecond) => "time-millis".into(),
            Avro::Time(_) => "time-micros".into(),
            Avro::Timestamp { unit, local } => {
                let unit = match unit {
                    TimeUnit::Second | TimeUnit::Millisecond => "millis",
                    TimeUnit::Microsecond => "micros",
                    TimeUnit::Nanosecond => "nanos",
                };
                format!("{}timestamp-{unit}", if *local { "local-" } else { "" })
            }
            Avro::Decimal { precision, scale, .. } => format!("decimal({precision}, {scale})"),
            Avro::Fixed(Fixed { size, .. }) => format!("fixed of {size} bytes"),
            Avro::Enum { .. } => "enum".into(),
            Avro::Array(items) => format!("array of {}", items.shown()),
            Avro::Map(values) => format!("map of {}", values.shown()),
            Avro::Record { .. } => "record".into(),
            Avro::Union(types) => {
                let types: Vec<String> = types.iter().map(Avro::shown).collect();
                format!("union of {}", types.join(", "))
            }
            plain => plain.json().as_str().unwrap_or_default().to_string(),
        }
    }

    /// The other type of a union with null, and whether null is the first.
    pub(super) fn nullable(&self) -> Option<(bool, &Avro)> {
        match self {
            Avro::Union(types) => match &types[..] {
                [Avro::Null, other] => Some((true, other)),
                [other, Avro::Null] => Some((false, other)),
                _ => None,
            },
            _ => None,
        }
    }

    /// A union with null.
    pub(super) fn or_null(self, null_first: bool) -> Avro {
        match null_first {
            true => Avro::Union(vec![Avro::Null, self]),
            false => Avro::Union(vec![self, Avro::Null]),
        }
    }

    /// Whether its values take no byte.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Avro::Null => true,
            Avro::Fixed(fixed) | Avro::Decimal { fixed: Some(fixed), .. } => fixed.size == 0,
            Avro::Record { fields, .. } => fields.iter().all(|field| field.of.is_empty()),
            _ => false,
        }
    }
}

impl Fixed {
    fn json(self) -> Value {
        json!({"type": "fixed", "name": name(self.number), "size": self.size})
    }
}

/// The library's name of a type with this number.
fn name(number: usize) -> String {
    format!("n{number}")
}

/// Named types that have been seen, and those that contain the type at hand.
struct Parser<'a> {
    named: HashMap<String, (&'a Value, String)>,
    open: Vec<String>,
    types: usize,
}

impl<'a> Parser<'a> {
    fn parse(&mut self, value: &'a Value, namespace: &str, depth: usize) -> Result<Avro, String> {
        self.types += 1;
        if self.types > TYPES_MAX || depth > DEPTH_MAX {
            return Err(format!(
                "it has more than {TYPES_MAX} types, or they are nested more than {DEPTH_MAX} deep"
            ));
        }
        match value {
            Value::String(name) => self.named(name, namespace, depth),
            Value::Array(types) => {
                let types = types.iter().map(|of| self.parse(of, namespace, depth + 1));
                let types = types.collect::<Result<Vec<_>, _>>()?;
                match types.iter().any(|of| matches!(of, Avro::Union(_))) {
                    true => Err("a union stands in a union".into()),
                    false => Ok(Avro::Union(types)),
                }
            }
            Value::Object(members) => match members.get("type") {
                Some(Value::String(of)) => self.complex(value, members, of, namespace, depth),
                Some(inner) => self.parse(inner, namespace, depth + 1),
                None => Err("a type has no member 'type'".into()),
            },
            _ => Err("a type is a text, an array or an object".into()),
        }
    }

    /// The type of a name.
    fn named(&mut self, name: &str, namespace: &str, depth: usize) -> Result<Avro, String> {
        if let Some(primitive) = primitive(name) {
            return Ok(primitive);
        }
        let full = full_name(name, namespace);
        let found = self.named.get_key_value(&full).or_else(|| self.named.get_key_value(name));
        let Some((full, (value, namespace))) = found else {
            return Err(format!("there is no type '{}'", name.escape_debug()));
        };
        let (full, value, namespace) = (full.clone(), *value, namespace.clone());
        if self.open.contains(&full) {
            return Err(format!("the type '{}' contains itself", full.escape_debug()));
        }
        self.parse(value, &namespace, depth + 1)
    }

    fn complex(
        &mut self,
        value: &'a Value,
        members: &'a Map<String, Value>,
        of: &str,
        namespace: &str,
        depth: usize,
    ) -> Result<Avro, String> {
        let text = |key: &str| members.get(key).and_then(Value::as_str);
        let member = |key: &str| {
            members.get(key).ok_or_else(|| format!("the type '{of}' has no member '{key}'"))
        };
        let number = self.types;
        let inner = match text("namespace") {
            Some(own) => own.to_string(),
            None => namespace.to_string(),
        };
        let define = |parser: &mut Self| {
            let name = text("name").ok_or_else(|| format!("a type '{of}' has no name"))?;
            let full = full_name(name, &inner);
            // Types within are in the namespace of the full name.
            let within = full.rsplit_once('.').map_or("", |(namespace, _)| namespace).to_string();
            parser.named.insert(full.clone(), (value, namespace.to_string()));
            Ok::<_, String>((full, within))
        };
        Ok(match of {
            "record" | "error" => {
                let (full, within) = define(self)?;
                self.open.push(full);
                let fields = member("fields")?.as_array().ok_or("'fields' is no array")?;
                let fields = fields.iter().map(|field| self.field(field, &within, depth));
                let fields = fields.collect::<Result<Vec<_>, _>>()?;
                self.open.pop();
                Avro::Record { number, fields }
            }
            "enum" => {
                define(self)?;
                let symbols = texts(member("symbols")?);
                Avro::Enum { number, symbols: symbols.ok_or("'symbols' is no array of texts")? }
            }
            "fixed" => {
                define(self)?;
                let size = member("size")?.as_u64().and_then(|size| i32::try_from(size).ok());
                let size = size.ok_or("'size' is no number of bytes")? as usize;
                let fixed = Fixed { number, size };
                logical(members, Avro::Fixed(fixed), Some(fixed))
            }
            "array" => {
                let items = self.parse(member("items")?, namespace, depth + 1)?;
                if items.is_empty() {
                    return Err("the elements of an array take no byte".into());
                }
                Avro::Array(Box::new(items))
            }
            "map" => Avro::Map(Box::new(self.parse(member("values")?, namespace, depth + 1)?)),
            other => match primitive(other) {
                Some(primitive) => logical(members, primitive, None),
                None => self.named(other, namespace, depth)?,
            },
        })
    }

    fn field(
        &mut self,
        field: &'a Value,
        namespace: &str,
        depth: usize,
    ) -> Result<AvroField, String> {
        let name = field.get("name").and_then(Value::as_str).ok_or("a field has no name")?;
        let of = field.get("type").ok_or_else(|| format!("the field '{name}' has no type"))?;
        let of = self.parse(of, namespace, depth + 1)?;
        let aliases = field.get("aliases").and_then(texts).unwrap_or_default();
        let default = field.get("default").cloned();
        Ok(AvroField { name: name.to_string(), aliases, of, default })
    }
}

fn texts(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|text| Some(text.as_str()?.to_string())).collect()
}

fn full_name(name: &str, namespace: &str) -> String {
    match name.contains('.') || namespace.is_empty() {
        true => name.to_string(),
        false => format!("{namespace}.{name}"),
    }
}

fn primitive(name: &str) -> Option<Avro> {
    Some(match name {
        "null" => Avro::Null,
        "boolean" => Avro::Boolean,
        "int" => Avro::Int,
        "long" => Avro::Long,
        "float" => Avro::Float,
        "double" => Avro::Double,
        "bytes" => Avro::Bytes,
        "string" => Avro::String,
        _ => return None,
    })
}

/// The logical type of a type, if it has one that counts here. Others are left out, as the
/// specification says: a uuid is its text.
fn logical(members: &Map<String, Value>, of: Avro, fixed: Option<Fixed>) -> Avro {
    let Some(name) = members.get("logicalType").and_then(Value::as_str) else { return of };
    let timestamp = |unit, local| Avro::Timestamp { unit, local };
    match (&of, name) {
        (Avro::Int, "date") => Avro::Date,
        (Avro::Int, "time-millis") => Avro::Time(TimeUnit::Millisecond),
        (Avro::Long, "time-micros") => Avro::Time(TimeUnit::Microsecond),
        (Avro::Long, "timestamp-millis") => timestamp(TimeUnit::Millisecond, false),
        (Avro::Long, "timestamp-micros") => timestamp(TimeUnit::Microsecond, false),
        (Avro::Long, "timestamp-nanos") => timestamp(TimeUnit::Nanosecond, false),
        (Avro::Long, "local-timestamp-millis") => timestamp(TimeUnit::Millisecond, true),
        (Avro::Long, "local-timestamp-micros") => timestamp(TimeUnit::Microsecond, true),
        (Avro::Long, "local-timestamp-nanos") => timestamp(TimeUnit::Nanosecond, true),
        (Avro::Bytes | Avro::Fixed(_), "decimal") => {
            let number = |key: &str| members.get(key).and_then(Value::as_u64);
            let precision = number("precision").and_then(|n| u8::try_from(n).ok());
            let scale = i8::try_from(number("scale").unwrap_or(0)).ok();
            match (precision, scale) {
                (Some(precision @ 1..=DECIMAL128_MAX_PRECISION), Some(scale))
                    if scale as u8 <= precision =>
                {
                    Avro::Decimal { precision, scale, fixed }
                }
                _ => of,
            }
        }
        _ => of,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_replaced_by_definitions() {
        let text = r#"{"type": "record", "name": "Envelope", "namespace": "shop.items", "fields": [
            {"name": "before", "type": ["null", {"type": "record", "name": "Value", "fields": [
                {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
                {"name": "id", "type": {"type": "string", "logicalType": "uuid"}}]}]},
            {"name": "after", "type": ["null", "Value"]},
            {"name": "again", "type": {"type": "shop.items.Value"}}]}"#;
        let Avro::Record { fields, .. } = Avro::parse(text).unwrap() else { panic!() };
        let within = |of: &Avro| match of {
            Avro::Record { fields, .. } => {
                fields.iter().map(|field| (field.name.clone(), field.of.shown())).collect()
            }
            other => vec![(String::new(), other.shown())],
        };
        let expected =
            [("at".into(), "timestamp-micros".to_string()), ("id".into(), "string".into())];
        for of in [fields[0].of.nullable().unwrap().1, fields[1].of.nullable().unwrap().1] {
            assert_eq!(within(of), expected);
        }
        assert_eq!(within(&fields[2].of), expected);
        // For the library, the three are different types.
        let json = Avro::parse(text).unwrap().json().to_string();
        let names: Vec<&str> = json.split("\"name\":\"n").skip(1).collect();
        let names: Vec<&str> = names.iter().filter_map(|text| text.split('"').next()).collect();
        assert_eq!(names.len(), 4);
        assert!((1..4).all(|at| !names[..at].contains(&names[at])), "{json}");
    }

    #[test]
    fn schemas_that_are_wrong_are_refused() {
        let fields = |of: &str| {
            format!(
                r#"{{"type": "record", "name": "R", "fields": [{{"name": "x", "type": {of}}}]}}"#
            )
        };
        for (of, message) in [
            (r#""R""#, "the type 'R' contains itself"),
            (r#"["null", {"type": "array", "items": "R"}]"#, "contains itself"),
            (r#""Missing""#, "there is no type 'Missing'"),
            (r#"{"type": "array", "items": "null"}"#, "take no byte"),
            (r#"["null", ["int"]]"#, "a union stands in a union"),
            (r#"{"type": "fixed", "name": "F", "size": -1}"#, "no number of bytes"),
            (r#"{"type": "enum", "name": "E", "symbols": [1]}"#, "no array of texts"),
            ("7", "a type is a text"),
        ] {
            let error = Avro::parse(&fields(of)).unwrap_err();
            assert!(error.contains(message), "{of}: {error}");
        }
        assert!(Avro::parse("{").unwrap_err().contains("no JSON"));
        // Two types that hold the next twice each: a text of a few kilobytes for 2^20 types.
        let mut of = r#""int""#.to_string();
        for level in (0..20).rev() {
            of = format!(
                r#"{{"type": "record", "name": "L{level}", "fields": [
                    {{"name": "a", "type": {of}}}, {{"name": "b", "type": "{}"}}]}}"#,
                if level == 19 { "int".to_string() } else { format!("L{}", level + 1) }
            );
        }
        assert!(Avro::parse(&of).unwrap_err().contains("more than"), "{of}");
    }
}

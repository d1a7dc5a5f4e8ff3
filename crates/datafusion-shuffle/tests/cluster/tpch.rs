//! TPC-H: its tables as Arrow files, and its 22 queries with the specification's values.

use std::fmt::{Display, Write};
use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::arrow::csv::ReaderBuilder;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::ipc::writer::FileWriter;
use datafusion::datasource::file_format::options::ArrowReadOptions;
use datafusion::error::Result;
use datafusion::prelude::SessionContext;
use tpchgen::csv::{
    CustomerCsv, LineItemCsv, NationCsv, OrderCsv, PartCsv, PartSuppCsv, RegionCsv, SupplierCsv,
};
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};
use tpchgen::q_and_a::queries;

/// Tables and their columns: i is a key, n a number, m money, d a date, t a text.
const TABLES: [(&str, &str); 8] = [
    ("nation", "n_nationkey:i n_name:t n_regionkey:i n_comment:t"),
    ("region", "r_regionkey:i r_name:t r_comment:t"),
    (
        "part",
        "p_partkey:i p_name:t p_mfgr:t p_brand:t p_type:t p_size:n p_container:t p_retailprice:m \
         p_comment:t",
    ),
    (
        "supplier",
        "s_suppkey:i s_name:t s_address:t s_nationkey:i s_phone:t s_acctbal:m s_comment:t",
    ),
    (
        "customer",
        "c_custkey:i c_name:t c_address:t c_nationkey:i c_phone:t c_acctbal:m c_mktsegment:t \
         c_comment:t",
    ),
    ("partsupp", "ps_partkey:i ps_suppkey:i ps_availqty:n ps_supplycost:m ps_comment:t"),
    (
        "orders",
        "o_orderkey:i o_custkey:i o_orderstatus:t o_totalprice:m o_orderdate:d o_orderpriority:t \
         o_clerk:t o_shippriority:n o_comment:t",
    ),
    (
        "lineitem",
        "l_orderkey:i l_partkey:i l_suppkey:i l_linenumber:n l_quantity:m l_extendedprice:m \
         l_discount:m l_tax:m l_returnflag:t l_linestatus:t l_shipdate:d l_commitdate:d \
         l_receiptdate:d l_shipinstruct:t l_shipmode:t l_comment:t",
    ),
];

fn schema(columns: &str) -> SchemaRef {
    let field = |column: &str| {
        let (name, kind) = column.split_once(':').expect("a name and a kind");
        let kind = match kind {
            "i" => DataType::Int64,
            "n" => DataType::Int32,
            "m" => DataType::Decimal128(15, 2),
            "d" => DataType::Date32,
            _ => DataType::Utf8View,
        };
        Field::new(name, kind, false)
    };
    Arc::new(Schema::new(columns.split_whitespace().map(field).collect::<Vec<_>>()))
}

fn lines<R: Display>(rows: impl Iterator<Item = R>) -> String {
    let mut text = String::new();
    for row in rows {
        writeln!(text, "{row}").expect("a string takes everything");
    }
    text
}

/// Rows of one of several parts of a table.
fn rows(table: &str, scale: f64, part: i32, parts: i32) -> String {
    match table {
        "nation" => lines(NationGenerator::new(scale, part, parts).iter().map(NationCsv::new)),
        "region" => lines(RegionGenerator::new(scale, part, parts).iter().map(RegionCsv::new)),
        "part" => lines(PartGenerator::new(scale, part, parts).iter().map(PartCsv::new)),
        "supplier" => {
            lines(SupplierGenerator::new(scale, part, parts).iter().map(SupplierCsv::new))
        }
        "customer" => {
            lines(CustomerGenerator::new(scale, part, parts).iter().map(CustomerCsv::new))
        }
        "partsupp" => {
            lines(PartSuppGenerator::new(scale, part, parts).iter().map(PartSuppCsv::new))
        }
        "orders" => lines(OrderGenerator::new(scale, part, parts).iter().map(OrderCsv::new)),
        _ => lines(LineItemGenerator::new(scale, part, parts).iter().map(LineItemCsv::new)),
    }
}

/// The directory with the tables of a scale, which are made if they are not there.
pub(crate) fn data(scale: f64) -> PathBuf {
    /// Tests of one process wait for each other; of several, the first is right.
    static MAKING: Mutex<()> = Mutex::new(());
    let _one = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    // Examples have no such directory.
    let directory = option_env!("CARGO_TARGET_TMPDIR").map_or_else(std::env::temp_dir, Into::into);
    let whole = directory.join(format!("tpch-{scale}"));
    if whole.is_dir() {
        return whole;
    }
    let begun = whole.with_extension(format!("{}", std::process::id()));
    for (table, columns) in TABLES {
        let directory = begun.join(table);
        fs::create_dir_all(&directory).expect("a directory for tables");
        let schema = schema(columns);
        let parts = if matches!(table, "nation" | "region") { 1 } else { 4 };
        for part in 1..=parts {
            let text = rows(table, scale, part, parts);
            let reader = ReaderBuilder::new(schema.clone())
                .with_batch_size(8192)
                .build(Cursor::new(text))
                .expect("a reader of rows");
            let file = fs::File::create(directory.join(format!("{part}.arrow")));
            let mut writer = FileWriter::try_new(file.expect("a file"), &schema).expect("a writer");
            for batch in reader {
                writer.write(&batch.expect("rows of the table")).expect("room for a table");
            }
            writer.finish().expect("room for a table");
        }
    }
    // Another process may have been faster.
    if fs::rename(&begun, &whole).is_err() {
        fs::remove_dir_all(&begun).expect("a directory that was made here");
    }
    whole
}

/// Registers the tables.
pub(crate) async fn register(context: &SessionContext, data: &Path) -> Result<()> {
    for (table, _) in TABLES {
        let path = format!("{}/", data.join(table).display());
        context.register_arrow(table, path, ArrowReadOptions::default()).await?;
    }
    Ok(())
}

/// A query, with the specification's values for validation, and its limit of rows.
pub(crate) fn query(number: i32, scale: f64) -> String {
    let share = format!("{:.10}", 0.0001 / scale);
    let quantity = if scale < 1.0 { "250" } else { "300" };
    let (values, limit): (&[&str], u32) = match number {
        1 => (&["90"], 0),
        2 => (&["15", "BRASS", "EUROPE"], 100),
        3 => (&["BUILDING", "1995-03-15"], 10),
        4 => (&["1993-07-01"], 0),
        5 => (&["ASIA", "1994-01-01"], 0),
        6 => (&["1994-01-01", "0.06", "24"], 0),
        7 => (&["FRANCE", "GERMANY"], 0),
        8 => (&["BRAZIL", "AMERICA", "ECONOMY ANODIZED STEEL"], 0),
        9 => (&["green"], 0),
        10 => (&["1993-10-01"], 20),
        11 => (&["GERMANY", &share], 0),
        12 => (&["MAIL", "SHIP", "1994-01-01"], 0),
        13 => (&["special", "requests"], 0),
        14 => (&["1995-09-01"], 0),
        15 => return TOP_SUPPLIER.into(),
        16 => (&["Brand#45", "MEDIUM POLISHED", "49", "14", "23", "45", "19", "3", "36", "9"], 0),
        17 => (&["Brand#23", "MED BOX"], 0),
        18 => (&[quantity], 100),
        19 => (&["Brand#12", "Brand#23", "Brand#34", "1", "10", "20"], 0),
        20 => (&["forest", "1994-01-01", "CANADA"], 0),
        21 => (&["SAUDI ARABIA"], 100),
        _ => (&["13", "31", "23", "29", "30", "18", "17"], 0),
    };
    let mut text = queries::query(number).expect("there are 22").replace("day (3)", "day");
    for (at, value) in values.iter().enumerate().rev() {
        text = text.replace(&format!(":{}", at + 1), value);
    }
    let text = text.trim().trim_end_matches(';');
    if limit > 0 { format!("{text} limit {limit}") } else { text.into() }
}

/// Query 15, with a common table expression in place of its view.
const TOP_SUPPLIER: &str = "
with revenue (supplier_no, total_revenue) as (
    select l_suppkey, sum(l_extendedprice * (1 - l_discount))
    from lineitem
    where l_shipdate >= date '1996-01-01' and l_shipdate < date '1996-01-01' + interval '3' month
    group by l_suppkey
)
select s_suppkey, s_name, s_address, s_phone, total_revenue
from supplier, revenue
where s_suppkey = supplier_no and total_revenue = (select max(total_revenue) from revenue)
order by s_suppkey";

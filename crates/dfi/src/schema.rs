//! Schemas: the attributes of a tuple, their types and offsets (thesis, section 7.4.1).
//!
//! Offsets are computed once, when the schema is built, as a C compiler for LP64 lays out a
//! `struct`: each attribute at a multiple of its alignment. So there is no type to interpret at run
//! time, and a `#[repr(C)]` struct reads the same bytes.

use std::fmt;
use std::marker::PhantomData;

use crate::error::{Error, Result};

/// Longest tuple, in bytes.
const TUPLE_BYTES_MAX: usize = 1 << 20;
/// Greatest alignment of an attribute: segments begin at multiples of it.
const ALIGN_MAX: usize = 16;

/// A type of attributes. Implement it for types of your own.
///
/// # Safety
/// Every pattern of bits is a value, there is no padding, no pointer and no interior mutability,
/// and the alignment is at most 16.
pub unsafe trait Type: Copy + Send + Sync + 'static {
    /// Name of the type; both ends compare it.
    const NAME: &'static str;
}

macro_rules! types {
    ($($rust:ident)*) => { $(
        // SAFETY: a number has neither padding nor invalid values.
        unsafe impl Type for $rust {
            const NAME: &'static str = stringify!($rust);
        }
    )* };
}

types!(u8 i8 u16 i16 u32 i32 u64 i64 u128 i128 f32 f64);

// SAFETY: bytes have neither padding nor invalid values.
unsafe impl<const N: usize> Type for [u8; N] {
    const NAME: &'static str = "bytes";
}

/// An attribute of a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute {
    /// Name, unique in the schema.
    pub name: String,
    /// [`Type::NAME`].
    pub type_name: String,
    /// First byte in the tuple.
    pub offset: usize,
    /// Length in bytes.
    pub bytes: usize,
    /// Alignment in bytes, a power of 2 up to 16.
    pub align: usize,
}

/// The attributes of a flow's tuples, in order.
///
/// ```
/// use millstream_dfi::Schema;
///
/// let schema = Schema::new().u64("key").i32("price").i16("shop");
/// assert_eq!((schema.attributes()[2].offset, schema.tuple_bytes()), (12, 16));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Schema {
    attributes: Vec<Attribute>,
    end: usize,
    align: usize,
}

macro_rules! shorthands {
    ($($rust:ident)*) => { $(
        #[doc = concat!("Adds an attribute of type `", stringify!($rust), "`.")]
        pub fn $rust(self, name: &str) -> Schema {
            self.attribute::<$rust>(name)
        }
    )* };
}

impl Schema {
    /// No attributes yet.
    pub fn new() -> Schema {
        Schema::default()
    }

    /// Adds an attribute of any type.
    pub fn attribute<T: Type>(self, name: &str) -> Schema {
        self.described(name, T::NAME, size_of::<T>(), align_of::<T>())
    }

    shorthands!(u8 i8 u16 i16 u32 i32 u64 i64 f32 f64);

    /// Adds an attribute of `N` bytes.
    pub fn bytes<const N: usize>(self, name: &str) -> Schema {
        self.attribute::<[u8; N]>(name)
    }

    /// Adds an attribute by the description of its type.
    pub(crate) fn described(
        mut self,
        name: &str,
        type_name: &str,
        bytes: usize,
        align: usize,
    ) -> Schema {
        let offset = self.end.next_multiple_of(align.max(1));
        self.end = offset.saturating_add(bytes);
        self.align = self.align.max(align);
        let (name, type_name) = (name.to_owned(), type_name.to_owned());
        self.attributes.push(Attribute { name, type_name, offset, bytes, align });
        self
    }

    /// The attributes, in order.
    pub fn attributes(&self) -> &[Attribute] {
        &self.attributes
    }

    /// Bytes of a tuple, a multiple of its alignment: what C's `sizeof` says.
    pub fn tuple_bytes(&self) -> usize {
        self.end.next_multiple_of(self.align.max(1))
    }

    /// Alignment of a tuple in bytes.
    pub fn align(&self) -> usize {
        self.align.max(1)
    }

    /// An attribute by name, if there is one.
    pub fn find(&self, name: &str) -> Option<&Attribute> {
        self.attributes.iter().find(|attribute| attribute.name == name)
    }

    /// Access to an attribute by its offset. Ask once, at set-up.
    ///
    /// # Errors
    /// There is no attribute of this name, or its type is another.
    pub fn field<T: Type>(&self, name: &str) -> Result<Field<T>> {
        let fits = |one: &&Attribute| one.type_name == T::NAME && one.bytes == size_of::<T>();
        match self.find(name).filter(fits) {
            Some(attribute) => Ok(Field { offset: attribute.offset, of: PhantomData }),
            None => Err(Error::NoAttribute {
                name: name.to_owned(),
                wanted: T::NAME.to_owned(),
                schema: self.to_string(),
            }),
        }
    }

    /// Why no flow can have this schema, if so.
    pub(crate) fn fault(&self) -> Option<String> {
        if self.attributes.is_empty() || self.tuple_bytes() == 0 {
            return Some("the schema has no attribute of any length".into());
        }
        if self.tuple_bytes() > TUPLE_BYTES_MAX {
            return Some(format!("a tuple of {} bytes, at most 1 MiB", self.tuple_bytes()));
        }
        for (at, one) in self.attributes.iter().enumerate() {
            if self.attributes[..at].iter().any(|before| before.name == one.name) {
                return Some(format!("two attributes are named {:?}", one.name));
            }
            if !one.align.is_power_of_two() || one.align > ALIGN_MAX {
                return Some(format!("attribute {:?} has alignment {}", one.name, one.align));
            }
        }
        None
    }
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, one) in self.attributes.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{} {}", one.name, one.type_name)?;
        }
        Ok(())
    }
}

/// An attribute of a known type at a known offset.
#[derive(Debug, Clone, Copy)]
pub struct Field<T> {
    offset: usize,
    of: PhantomData<T>,
}

impl<T: Type> Field<T> {
    /// The attribute's value in a tuple of the field's schema.
    ///
    /// # Panics
    /// If the tuple is shorter than the schema says.
    #[inline]
    #[track_caller]
    pub fn get(&self, tuple: &[u8]) -> T {
        let bytes = &tuple[self.offset..self.offset + size_of::<T>()];
        // SAFETY: so many bytes, of which every pattern is a value.
        unsafe { bytes.as_ptr().cast::<T>().read_unaligned() }
    }
}

/// A struct that is a tuple; [`tuple!`](crate::tuple!) declares one.
///
/// # Safety
/// `#[repr(C)]`, each field is a [`Type`], there is no padding, and `schema` names the fields in
/// order.
pub unsafe trait Tuple: Copy + Send + Sync + 'static {
    /// The schema of these tuples.
    fn schema() -> Schema;
}

/// Bytes of a tuple, for [`Source::push`](crate::Source::push): a [`Tuple`], plain bytes, or an
/// array of 64-bit integers.
pub trait AsTuple {
    /// The bytes.
    fn tuple(&self) -> &[u8];
}

impl<T: Tuple> AsTuple for T {
    #[inline]
    fn tuple(&self) -> &[u8] {
        // SAFETY: the type has no padding, so all its bytes are initialised.
        unsafe { std::slice::from_raw_parts((&raw const *self).cast(), size_of::<T>()) }
    }
}

impl AsTuple for [u8] {
    #[inline]
    fn tuple(&self) -> &[u8] {
        self
    }
}

impl<const N: usize> AsTuple for [u8; N] {
    #[inline]
    fn tuple(&self) -> &[u8] {
        self
    }
}

impl<const N: usize> AsTuple for [u64; N] {
    #[inline]
    fn tuple(&self) -> &[u8] {
        // SAFETY: integers have no padding.
        unsafe { std::slice::from_raw_parts(self.as_ptr().cast(), size_of::<[u64; N]>()) }
    }
}

/// Declares a struct that is a [`Tuple`]. Padding is a compile error: order the fields by length.
///
/// ```
/// millstream_dfi::tuple! {
///     /// A sale.
///     pub struct Sale { pub shop: u64, pub price: i64 }
/// }
/// assert_eq!(<Sale as millstream_dfi::Tuple>::schema().tuple_bytes(), 16);
/// ```
#[macro_export]
macro_rules! tuple {
    ($(#[$meta:meta])* $vis:vis struct $name:ident {
        $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $type:ty),* $(,)?
    }) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Debug, Clone, Copy, PartialEq)]
        $vis struct $name { $($(#[$field_meta])* $field_vis $field: $type),* }

        const _: () = assert!(
            ::std::mem::size_of::<$name>() == 0 $(+ ::std::mem::size_of::<$type>())*,
            "a tuple has no padding: order its fields by length",
        );

        // SAFETY: `#[repr(C)]`, without padding as asserted, and `attribute` asks for `Type`.
        unsafe impl $crate::Tuple for $name {
            fn schema() -> $crate::Schema {
                $crate::Schema::new()$(.attribute::<$type>(stringify!($field)))*
            }
        }
    };
}

//! The table of functions of `libibverbs.so.1`, which is opened when it is first asked for.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use crate::Unavailable;
use crate::raw::*;

/// Name of the library; the major version stands for the binary interface.
const LIBRARY: &CStr = c"libibverbs.so.1";

/// Declares the table of functions, and its loading: each with the symbol version it must have.
macro_rules! functions {
    ($($version:literal $name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The exported functions, under their C names.
        pub(crate) struct Library {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            /// Since rdma-core 41; `None` in older ones.
            pub(crate) ibv_query_qp_data_in_order:
                Option<unsafe extern "C" fn(*mut ibv_qp, c_uint, u32) -> c_int>,
        }

        impl Library {
            fn load(handle: Handle) -> Result<Library, Unavailable> {
                Ok(Library {
                    // SAFETY: the types are those of the header for this symbol version, which
                    // never change; function pointers and data pointers have the same size.
                    $($name: unsafe {
                        std::mem::transmute::<
                            *mut c_void,
                            unsafe extern "C" fn($($argument),*) $(-> $result)?,
                        >(handle.symbol(stringify!($name), $version)?)
                    },)*
                    ibv_query_qp_data_in_order: handle
                        .symbol("ibv_query_qp_data_in_order", "IBVERBS_1.14")
                        .ok()
                        // SAFETY: as above.
                        .map(|f| unsafe { std::mem::transmute(f) }),
                })
            }
        }
    };
}

functions! {
    "IBVERBS_1.1" ibv_get_device_list(*mut c_int) -> *mut *mut ibv_device;
    "IBVERBS_1.1" ibv_free_device_list(*mut *mut ibv_device);
    "IBVERBS_1.1" ibv_open_device(*mut ibv_device) -> *mut ibv_context;
    "IBVERBS_1.1" ibv_close_device(*mut ibv_context) -> c_int;
    "IBVERBS_1.1" ibv_query_device(*mut ibv_context, *mut ibv_device_attr) -> c_int;
    "IBVERBS_1.1" ibv_query_port(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int;
    "IBVERBS_1.11" _ibv_query_gid_table(
        *mut ibv_context, *mut ibv_gid_entry, usize, u32, usize) -> isize;
    "IBVERBS_1.1" ibv_get_async_event(*mut ibv_context, *mut ibv_async_event) -> c_int;
    "IBVERBS_1.1" ibv_ack_async_event(*mut ibv_async_event);
    "IBVERBS_1.1" ibv_event_type_str(c_uint) -> *const c_char;
    "IBVERBS_1.1" ibv_wc_status_str(c_uint) -> *const c_char;
    "IBVERBS_1.1" ibv_alloc_pd(*mut ibv_context) -> *mut ibv_pd;
    "IBVERBS_1.1" ibv_dealloc_pd(*mut ibv_pd) -> c_int;
    "IBVERBS_1.1" ibv_reg_mr(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
    "IBVERBS_1.1" ibv_dereg_mr(*mut ibv_mr) -> c_int;
    "IBVERBS_1.0" ibv_create_comp_channel(*mut ibv_context) -> *mut ibv_comp_channel;
    "IBVERBS_1.0" ibv_destroy_comp_channel(*mut ibv_comp_channel) -> c_int;
    "IBVERBS_1.1" ibv_create_cq(
        *mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
    "IBVERBS_1.1" ibv_destroy_cq(*mut ibv_cq) -> c_int;
    "IBVERBS_1.1" ibv_get_cq_event(
        *mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
    "IBVERBS_1.1" ibv_ack_cq_events(*mut ibv_cq, c_uint);
    "IBVERBS_1.1" ibv_create_qp(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;
    "IBVERBS_1.1" ibv_modify_qp(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
    "IBVERBS_1.1" ibv_query_qp(
        *mut ibv_qp, *mut ibv_qp_attr, c_int, *mut ibv_qp_init_attr) -> c_int;
    "IBVERBS_1.1" ibv_destroy_qp(*mut ibv_qp) -> c_int;
    "IBVERBS_1.1" ibv_attach_mcast(*mut ibv_qp, *const ibv_gid, u16) -> c_int;
    "IBVERBS_1.1" ibv_detach_mcast(*mut ibv_qp, *const ibv_gid, u16) -> c_int;
    "IBVERBS_1.1" ibv_create_ah(*mut ibv_pd, *mut ibv_ah_attr) -> *mut ibv_ah;
    "IBVERBS_1.1" ibv_destroy_ah(*mut ibv_ah) -> c_int;
}

impl Library {
    /// The library; opened by the first call, never closed, since its drivers would not survive
    /// closing.
    pub(crate) fn get() -> Result<&'static Library, Unavailable> {
        static LOADED: OnceLock<Result<Library, Unavailable>> = OnceLock::new();
        LOADED.get_or_init(|| Library::open(LIBRARY)).as_ref().map_err(Clone::clone)
    }

    fn open(name: &CStr) -> Result<Library, Unavailable> {
        Library::load(Handle::open(name)?)
    }
}

/// Handle from `dlopen`. Deliberately never closed.
struct Handle(*mut c_void);

impl Handle {
    fn open(name: &CStr) -> Result<Handle, Unavailable> {
        // SAFETY: the name is a C string; the library's initialisers are those of rdma-core.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(Unavailable::Library { reason: last_error() });
        }
        Ok(Handle(handle))
    }

    fn symbol(&self, name: &str, version: &str) -> Result<*mut c_void, Unavailable> {
        let missing = |_| Unavailable::Symbol { name: name.into(), version: version.into() };
        let c_name = CString::new(name).map_err(|_| missing(()))?;
        let c_version = CString::new(version).map_err(|_| missing(()))?;
        // SAFETY: the handle is that of an open library, both names are C strings.
        let symbol = unsafe { libc::dlvsym(self.0, c_name.as_ptr(), c_version.as_ptr()) };
        if symbol.is_null() { Err(missing(())) } else { Ok(symbol) }
    }
}

fn last_error() -> String {
    // SAFETY: `dlerror` returns null, or a C string that lasts until this thread's next dl call.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "unknown reason".into();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_an_answer_not_a_crash() {
        let unavailable = Library::open(c"libmillstream-no-such-library.so.1").err().unwrap();
        assert!(matches!(unavailable, Unavailable::Library { .. }), "{unavailable:?}");
        let text = unavailable.to_string();
        assert!(
            text.starts_with("RDMA: not available: libibverbs.so.1 cannot be opened"),
            "{text}"
        );
        assert!(text.contains("libmillstream-no-such-library.so.1"), "the linker's words: {text}");
    }

    #[test]
    fn a_library_without_the_functions_is_named_as_too_old() {
        let unavailable = Library::open(c"libc.so.6").err().unwrap();
        let text = unavailable.to_string();
        assert!(text.contains("ibv_get_device_list@IBVERBS_1.1"), "{text}");
    }
}

//! RDMA devices: list, opening, limits.

use std::ffi::CStr;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{check, non_null};
use crate::event::AsyncEvent;
use crate::library::Library;
use crate::port::{GidEntry, Port};
use crate::raw::*;
use crate::wait::{set_nonblocking, wait_readable};
use crate::{Error, Unavailable};

/// A device in the list of those present. Listing needs no permission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceName {
    /// The name, such as `mlx5_0` or `rxe0`.
    pub name: String,
    /// The device's file.
    pub file: String,
}

/// The present devices, at least one.
pub fn devices() -> Result<Vec<DeviceName>, Unavailable> {
    let list = DeviceList::get()?;
    let names: Vec<_> = list.iter().map(|device| list.name(device)).collect();
    if names.is_empty() { Err(Unavailable::NoDevice) } else { Ok(names) }
}

struct DeviceList {
    library: &'static Library,
    first: NonNull<*mut ibv_device>,
    count: usize,
}

impl DeviceList {
    fn get() -> Result<DeviceList, Unavailable> {
        let library = Library::get()?;
        let mut count = 0;
        // SAFETY: `count` is writable.
        let list = unsafe { (library.ibv_get_device_list)(&mut count) };
        match non_null("ibv_get_device_list", list) {
            Ok(first) => Ok(DeviceList { library, first, count: count.max(0) as usize }),
            // The kernel has no RDMA at all.
            Err(Error { errno: libc::ENOSYS | libc::ENOENT, .. }) => Err(Unavailable::NoDevice),
            Err(error) => Err(Unavailable::Failed(error)),
        }
    }

    fn iter(&self) -> impl Iterator<Item = NonNull<ibv_device>> {
        // SAFETY: the library returned an array of `count` pointers, valid until it is freed.
        let devices = unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) };
        devices.iter().filter_map(|device| NonNull::new(*device))
    }

    fn name(&self, device: NonNull<ibv_device>) -> DeviceName {
        // SAFETY: the device is in the list, and the list is not freed; both names are C strings.
        let (name, dev_name) = unsafe {
            let device = device.as_ref();
            (CStr::from_ptr(device.name.as_ptr()), CStr::from_ptr(device.dev_name.as_ptr()))
        };
        DeviceName {
            name: name.to_string_lossy().into_owned(),
            file: format!("/dev/infiniband/{}", dev_name.to_string_lossy()),
        }
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: the list is the library's, and freed once.
        unsafe { (self.library.ibv_free_device_list)(self.first.as_ptr()) }
    }
}

/// An open device, kept open by every object made from it.
pub struct Context {
    pub(crate) library: &'static Library,
    pub(crate) raw: NonNull<ibv_context>,
    name: DeviceName,
}

// SAFETY: libibverbs' objects may be used from any thread, several at a time.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Opens the device of that name; [`devices`] lists them.
    pub fn open(name: &str) -> Result<Arc<Context>, Unavailable> {
        let list = DeviceList::get()?;
        let found = list.iter().find(|device| list.name(*device).name == name);
        let Some(device) = found else {
            let present = devices()?.into_iter().map(|device| device.name).collect();
            return Err(Unavailable::UnknownDevice { name: name.into(), present });
        };
        let name = list.name(device);
        // SAFETY: the device is in the list, which is not freed yet.
        let context = unsafe { (list.library.ibv_open_device)(device.as_ptr()) };
        let raw = non_null("ibv_open_device", context).map_err(|error| why_closed(&name, error))?;
        let context = Arc::new(Context { library: list.library, raw, name });
        set_nonblocking(context.async_fd()).map_err(Unavailable::Failed)?;
        Ok(context)
    }

    /// Which device it is.
    pub fn name(&self) -> &DeviceName {
        &self.name
    }

    /// The device's limits.
    pub fn limits(&self) -> Result<DeviceLimits, Error> {
        // SAFETY: all zero is a value of this plain structure.
        let mut attributes = unsafe { std::mem::zeroed::<ibv_device_attr>() };
        // SAFETY: the context is open, the attributes are writable.
        let code = unsafe { (self.library.ibv_query_device)(self.raw.as_ptr(), &mut attributes) };
        check("ibv_query_device", code)?;
        Ok(DeviceLimits::from_raw(&attributes))
    }

    /// The state and limits of a port; ports count from 1.
    pub fn port(&self, port: u8) -> Result<Port, Error> {
        // SAFETY: all zero is a value of this plain structure.
        let mut attributes = unsafe { std::mem::zeroed::<ibv_port_attr>() };
        // SAFETY: the context is open, the attributes are writable and larger than what is written.
        let code =
            unsafe { (self.library.ibv_query_port)(self.raw.as_ptr(), port, &mut attributes) };
        check("ibv_query_port", code)?;
        Ok(Port::from_raw(&attributes))
    }

    /// All valid entries of the device's GID tables, of all its ports.
    pub fn gids(&self) -> Result<Vec<GidEntry>, Error> {
        let mut capacity = 64;
        loop {
            let mut entries = vec![ibv_gid_entry::default(); capacity];
            // SAFETY: `entries` has room for `capacity` entries of the given size.
            let count = unsafe {
                (self.library._ibv_query_gid_table)(
                    self.raw.as_ptr(),
                    entries.as_mut_ptr(),
                    capacity,
                    0,
                    size_of::<ibv_gid_entry>(),
                )
            };
            match usize::try_from(count) {
                Ok(count) => {
                    return Ok(entries[..count.min(capacity)]
                        .iter()
                        .map(GidEntry::from_raw)
                        .collect());
                }
                // More entries than there was room for.
                Err(_) if count == -(libc::EINVAL as isize) && capacity < 1 << 16 => capacity *= 4,
                Err(_) => {
                    return Err(Error { call: "ibv_query_gid_table", errno: -count as i32 });
                }
            }
        }
    }

    /// The file descriptor that becomes readable when an event has come, for `poll`.
    pub fn async_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the context is.
        unsafe { BorrowedFd::borrow_raw(self.raw.as_ref().async_fd) }
    }

    /// Waits for the next asynchronous event of the device; `None` when the time is up.
    pub fn next_event(&self, timeout: Duration) -> Result<Option<AsyncEvent>, Error> {
        if !wait_readable([self.async_fd()], timeout)? {
            return Ok(None);
        }
        // SAFETY: all zero is a value of this plain structure.
        let mut raw = unsafe { std::mem::zeroed::<ibv_async_event>() };
        // SAFETY: the context is open, the event writable.
        let code = unsafe { (self.library.ibv_get_async_event)(self.raw.as_ptr(), &mut raw) };
        if code != 0 {
            let error = Error::last("ibv_get_async_event");
            // Another thread took the event.
            return if error.errno == libc::EAGAIN { Ok(None) } else { Err(error) };
        }
        // SAFETY: the library just filled `raw`; its object lives until the event is acknowledged,
        // because destroying the object waits for the acknowledgement.
        let event = unsafe { AsyncEvent::from_raw(self.library, &raw) };
        // SAFETY: each event is acknowledged once.
        unsafe { (self.library.ibv_ack_async_event)(&mut raw) };
        Ok(Some(event))
    }
}

/// Reason why a device cannot be opened. The library's error is no help: after any failure the
/// library looks for the device elsewhere, and reports that there is none.
fn why_closed(device: &DeviceName, error: Error) -> Unavailable {
    let DeviceName { name, file } = device.clone();
    match OpenOptions::new().read(true).write(true).open(&file).map_err(|error| error.kind()) {
        Err(ErrorKind::PermissionDenied) => Unavailable::Permission { name, file },
        Err(ErrorKind::NotFound) => Unavailable::NoFile { name, file },
        _ => Unavailable::Failed(error),
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context goes only after all objects made from it. A failure can only be
        // ignored: the library frees its memory regardless.
        unsafe { (self.library.ibv_close_device)(self.raw.as_ptr()) };
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("name", &self.name.name).finish()
    }
}

/// Capabilities of a device. Counts are per device, unless stated otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceLimits {
    /// The number of ports; they count from 1.
    pub ports: u8,
    /// Outstanding requests of one queue.
    pub requests_per_queue: u32,
    /// Entries of one completion queue.
    pub completions_per_queue: u32,
    /// Reads and atomics that one queue pair accepts from its peer at a time.
    pub reads_accepted_per_queue_pair: u8,
    /// Reads and atomics that one queue pair may have under way.
    pub reads_started_per_queue_pair: u8,
    /// Multicast groups; 0 without multicast.
    pub multicast_groups: u32,
    /// Queue pairs attached to one multicast group.
    pub queue_pairs_per_group: u32,
}

impl DeviceLimits {
    fn from_raw(raw: &ibv_device_attr) -> DeviceLimits {
        // The C structure counts in `int`; a driver's -1 means none.
        let count = |n: i32| n.max(0) as u32;
        let byte = |n: i32| n.clamp(0, 255) as u8;
        DeviceLimits {
            ports: raw.phys_port_cnt,
            requests_per_queue: count(raw.max_qp_wr),
            completions_per_queue: count(raw.max_cqe),
            reads_accepted_per_queue_pair: byte(raw.max_qp_rd_atom),
            reads_started_per_queue_pair: byte(raw.max_qp_init_rd_atom),
            multicast_groups: count(raw.max_mcast_grp),
            queue_pairs_per_group: count(raw.max_mcast_qp_attach),
        }
    }
}

impl std::os::fd::AsFd for Context {
    /// [`Context::async_fd`].
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.async_fd()
    }
}

impl AsRawFd for Context {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.async_fd().as_raw_fd()
    }
}

//! IP multicast: the sockets of a group's members, and the interface that senders use.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};

use crate::datagram::SocketAddress;
use crate::error::{Error, Result, last_os_error, opened};

/// Address of the interface that a device's groups use.
pub(super) fn interface(device: SocketAddr) -> Result<Ipv4Addr> {
    match device {
        SocketAddr::V4(address) => Ok(*address.ip()),
        SocketAddr::V6(_) => Err(Error::Unsupported {
            what: "multicast groups over tcp at an IPv6 address; give an IPv4 address",
        }),
    }
}

/// Lets a socket's datagrams to groups go out at this interface, and back to members of this host.
pub(super) fn send_from(socket: &UdpSocket, interface: Ipv4Addr) -> Result<()> {
    let address = libc::in_addr { s_addr: u32::from(interface).to_be() };
    set(socket, "setsockopt(IP_MULTICAST_IF)", libc::IPPROTO_IP, libc::IP_MULTICAST_IF, &address)?;
    let io = |source| Error::Os { call: "setsockopt(IP_MULTICAST_LOOP)", source };
    socket.set_multicast_loop_v4(true).map_err(io)
}

/// A socket that receives datagrams to the group `ip` at this interface and nothing else; `address`
/// is the group's address and port. Members of one host share both, and each gets a copy.
pub(super) fn join(address: &SocketAddress, ip: Ipv4Addr, interface: Ipv4Addr) -> Result<OwnedFd> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: a plain call.
    let socket = opened("socket", unsafe { libc::socket(libc::AF_INET, kind, 0) })?;
    set(&socket, "setsockopt(SO_REUSEADDR)", libc::SOL_SOCKET, libc::SO_REUSEADDR, &1_i32)?;
    // Without this, the socket would get the group's datagrams from all interfaces of the host.
    set(&socket, "setsockopt(IP_MULTICAST_ALL)", libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, &0_i32)?;
    let (start, length) = address.parts();
    // SAFETY: the address is alive and has this length.
    if unsafe { libc::bind(socket.as_raw_fd(), start, length) } < 0 {
        return Err(last_os_error("binding to a multicast group"));
    }
    let socket = UdpSocket::from(socket);
    let io = |source| Error::Os { call: "joining a multicast group", source };
    socket.join_multicast_v4(&ip, &interface).map_err(io)?;
    Ok(OwnedFd::from(socket))
}

/// Sets an option whose value is a plain structure of the system's.
fn set<T>(
    socket: &impl AsRawFd,
    call: &'static str,
    level: i32,
    option: i32,
    value: &T,
) -> Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    let value = std::ptr::from_ref(value).cast();
    // SAFETY: the option's value is alive and has this length.
    match unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value, length) } {
        0 => Ok(()),
        _ => Err(last_os_error(call)),
    }
}

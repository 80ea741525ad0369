#!/usr/bin/env bash
# Makes two machines of this one, node1 and node2, and runs a command on node1. It shows what several
# machines change, and what goes wrong when a network does. Needs root.
#
#   scripts/cluster/two_hosts.sh \
#     scripts/cluster/mpirun_hosts.sh --hosts node1:2,node2:2 step4 --steps 10
#
#   --help                 this text
#
# Each machine is a set of the kernel's namespaces: a host name, a network interface eth0 with an
# address, a /tmp and a /dev/shm of its own. All other folders are shared, as on a cluster. MPI takes
# them for different machines, and their ranks talk over TCP. They share this machine's cores, so such
# a run says nothing about speed.
#
# Instead of ssh, mpirun gets a small program: "$SSH" node2 COMMAND runs a command on node2. To see a
# machine that cannot reach the other:
#
#   scripts/cluster/two_hosts.sh bash -c '"$SSH" node2 ip route add blackhole 10.99.0.1
#     scripts/cluster/mpirun_hosts.sh --hosts node1:1,node2:1 step4'
set -euo pipefail
fail() { # CODE TEXT
  printf 'ladder: %s\n' "$2" >&2
  exit "$1"
}

end_machines() { kill "${MACHINES[@]}" 2>/dev/null || true; }

# start_machine N: a process that keeps the namespaces of machine N, added to MACHINES.
start_machine() {
  # shellcheck disable=SC2016  # expanded on the machine
  unshare --net --uts --mount bash -c 'hostname "node$1"
    mount -t tmpfs none /tmp
    mount -t tmpfs none /dev/shm
    printf "127.0.0.1 localhost\n10.99.0.1 node1\n10.99.0.2 node2\n" >/tmp/hosts
    mount --bind /tmp/hosts /etc/hosts
    touch /tmp/is_ready
    exec sleep infinity' - "$1" &
  MACHINES+=("$!")
  until [[ -e /proc/$!/root/tmp/is_ready && $(nsenter -t "$!" --uts hostname) == "node$1" ]]; do
    kill -0 "$!" 2>/dev/null || fail 1 "namespaces cannot be made here"
    sleep 0.05
  done
}

main() {
  local number status=0
  case ${1:-} in
    --help | -h) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; return ;;
    -*) fail 2 "unknown option $1; there is --help. A command's own options follow it" ;;
    "") fail 2 "which command? scripts/cluster/two_hosts.sh COMMAND runs it on node1 (--help says more)" ;;
  esac
  command -v ip >/dev/null || fail 1 "there is no program ip here: sudo apt-get install iproute2"
  [[ $(id -u) == 0 ]] || fail 1 "only root can make network namespaces: run it with sudo, or in a container"
  MACHINES=()
  trap end_machines EXIT
  start_machine 1
  start_machine 2
  ip link add name eth0 netns "${MACHINES[0]}" type veth peer name eth0 netns "${MACHINES[1]}"
  for number in 1 2; do
    nsenter -t "${MACHINES[number - 1]}" --net ip address add "10.99.0.$number/24" dev eth0
    nsenter -t "${MACHINES[number - 1]}" --net ip link set eth0 up
    nsenter -t "${MACHINES[number - 1]}" --net ip link set lo up
  done
  until nsenter -t "${MACHINES[1]}" --net ip -brief link show eth0 | grep -q ' UP '; do sleep 0.05; done
  # Called as ssh: options, the host, the words of a command line.
  tee "/proc/${MACHINES[0]}/root/tmp/ssh" >"/proc/${MACHINES[1]}/root/tmp/ssh" <<END
#!/bin/bash
machines=(${MACHINES[*]})
while [[ \$1 == -* ]]; do shift; done
if [[ ! \$1 =~ ^node[12]\$ ]]; then echo "ssh: could not resolve hostname \$1" >&2; exit 255; fi
machine=\${machines[\${1#node} - 1]}
shift
exec nsenter -t "\$machine" --net --uts --mount bash -c "\$*"
END
  chmod +x "/proc/${MACHINES[0]}/root/tmp/ssh" "/proc/${MACHINES[1]}/root/tmp/ssh"
  export SSH=/tmp/ssh OMPI_MCA_plm_rsh_agent=/tmp/ssh
  nsenter -t "${MACHINES[0]}" --net --uts --mount env -C "$PWD" "$@" || status=$?
  return "$status"
}
main "$@"

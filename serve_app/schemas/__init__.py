"""The bodies that clients send and read, one module for each operation or resource."""

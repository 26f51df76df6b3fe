"""From nodes to a flat program: views of buffers (view), the program (program), and the walk that makes it (emit)."""

"""What a block of each kernel does, step by step: the data of the lab page's stepper."""

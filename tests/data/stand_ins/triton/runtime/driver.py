class _Driver:
    active = None

    def set_active(self, found):
        self.active = found


driver = _Driver()
